# The arrays of a batch: included by decode.pyx.

cdef class _Assembly:
    """The arrays of a batch, and where each chunk writes to them."""

    cdef Decoder decoder
    cdef _Chunks chunks
    cdef int64_t rows
    cdef bint with_ids
    # A column: [key, kind, outer, step_present, splits, values]; outer and step_present of lists only.
    cdef tuple columns
    # The values of each column, if the decoder is plain.
    cdef dict plain
    # For each table, which record has which column: bool (columns, rows).
    cdef list present

    def __cinit__(self, Decoder decoder, _Chunks chunks, bint with_ids):
        self.decoder = decoder
        self.chunks = chunks
        self.with_ids = with_ids
        self.columns = ([], [])
        self.present = [None, None]

    cdef int allocate(self) except -1:
        """Presence, splits, and the values of dense columns. Before the records are scanned, where all columns were
        asked for: those of one number a row are then written to at once."""
        cdef decode_chunk *first = &self.chunks.items[0]
        cdef decode_chunk *chunk
        cdef int t
        cdef Py_ssize_t i, c
        cdef size_t size
        cdef uint8_t *flags
        self.rows = self.chunks.rows()
        for c in range(self.chunks.count):
            chunk = &self.chunks.items[c]
            for t in range(chunk.num_tables):
                size = chunk.tables[t].num_columns * sizeof(column_output)
                chunk.outputs[t] = <column_output *> block_take(size)
                if chunk.outputs[t] == NULL:
                    raise MemoryError
                memset(chunk.outputs[t], 0, size)
        for t in range(first.num_tables):
            names = self.decoder.list_names if t else self.decoder.names
            self.present[t] = _array(first.tables[t].num_columns, 1, _BOOL, (self.rows,))
            flags = <uint8_t *> _pointer(self.present[t])
            if self.decoder.plain is not None:
                self.allocate_plain(flags)
                continue
            for i in range(first.tables[t].num_columns):
                if first.tables[t].discover:
                    key, shape = _key_text(&first.tables[t].columns[i]), None
                else:
                    key, shape = names[i]
                (<list> self.columns[t]).append(self.allocate_column(t, i, key, shape, flags + i * self.rows))
        return 0

    cdef int allocate_plain(self, uint8_t *flags) except -1:
        """What `allocate_column` does, where every column is dense and holds numbers."""
        cdef Py_ssize_t i = 0
        self.plain = self.decoder.plain.copy()
        for key, shape in self.decoder.names:
            values = self.new_values(self.decoder.tables[0].columns[i].kind, self.rows, 1, shape)
            self.plain[key] = values
            self.aim_dense(0, i, values, flags + i * self.rows)
            i += 1
        return 0

    cdef list allocate_column(self, int t, Py_ssize_t i, object key, object shape, uint8_t *flags):
        cdef decode_chunk *chunk = &self.chunks.items[0]
        cdef Py_ssize_t c
        cdef int64_t slots = self.rows, count = chunk.tables[t].columns[i].count, at = 0
        cdef int kind = chunk.tables[t].columns[i].kind, likely
        cdef uint8_t *present = flags
        cdef int64_t *split_data = NULL
        cdef column_output *out
        outer = steps = splits = values = None
        if t:
            outer, slots = self.join_steps(i, flags)
            steps = _array(slots, 1, _BOOL)
            present = <uint8_t *> _pointer(steps)
        if count >= 0:
            values = self.new_values(kind, slots, count, shape)
            self.aim_dense(t, i, values, present)
            return [key, kind, outer, steps, splits, values]
        splits = _array(slots + 1, 8, _INT64)
        split_data = <int64_t *> _pointer(splits)
        split_data[0] = 0
        likely = self.likely_kind(t, i)
        if not t or likely != KIND_BYTES:
            values = self.new_values(likely, slots)
        for c in range(self.chunks.count):
            chunk = &self.chunks.items[c]
            out = &chunk.outputs[t][i]
            out.present = present + at
            out.splits = split_data + 1 + at
            out.kind = kind
            out.level = out.sink.level = self.decoder.level
            if values is not None:
                self.aim(out, likely, values, at)
            at += chunk.tables[t].columns[i].num_slots
        return [key, kind, outer, steps, splits, values]

    cdef int likely_kind(self, int t, Py_ssize_t i) noexcept:
        """The kind of a column: the requested one, or if any will do, that of its first slot, if that is known."""
        cdef decode_chunk *chunk = &self.chunks.items[0]
        cdef scan_column *column = &chunk.tables[t].columns[i]
        if column.kind == KIND_UNKNOWN and chunk.rows and column.num_slots and column.slots[0].shape > SLOT_NO_KIND:
            return column.slots[0].kind
        return column.kind

    cdef int aim_dense(self, int t, Py_ssize_t i, object values, uint8_t *present) except -1:
        """Make the chunks write a dense column: to `values`, and whether rows are present."""
        cdef decode_chunk *chunk
        cdef scan_column *column
        cdef column_output *out
        cdef Py_ssize_t c
        cdef int64_t at = 0
        for c in range(self.chunks.count):
            chunk = &self.chunks.items[c]
            column = &chunk.tables[t].columns[i]
            out = &chunk.outputs[t][i]
            out.present = present + at
            out.kind = column.kind
            out.level = out.sink.level = self.decoder.level
            self.aim(out, column.kind, values, at * column.count)
            if column.count == 1 and chunk.num_tables == 1 and column.kind != KIND_BYTES:
                column.direct = out.sink.floats if column.kind == KIND_FLOAT else out.sink.ints
                memset(out.present, 1, chunk.count)
            at += column.num_slots
        return 0

    cdef tuple join_steps(self, Py_ssize_t i, uint8_t *present):
        """The outer splits of a list column and the number of its steps; tells which records have it."""
        cdef decode_chunk *chunk
        cdef Py_ssize_t c
        outer = _array(self.rows + 1, 8, _INT64)
        cdef int64_t *splits = <int64_t *> _pointer(outer)
        cdef int64_t total = 0, row
        cdef scan_column *column
        for c in range(self.chunks.count):
            chunk = &self.chunks.items[c]
            column = &chunk.tables[1].columns[i]
            for row in range(chunk.count):
                splits[chunk.first + row] = total + column.steps[row]
                present[chunk.first + row] = column.listed[row]
            total += column.num_slots
        splits[self.rows] = total
        return outer, total

    cdef object new_values(self, int kind, int64_t rows, int64_t count=1, tuple shape=()):
        """Room for values of a kind, `count` in each row of a shape."""
        if kind == KIND_BYTES:
            rows *= count
            ids = _array(rows, 4, _INT32) if self.with_ids else None
            return _array(rows, 8, _INT64), _array(rows, 8, _INT64), ids
        if kind == KIND_FLOAT:
            return _array(rows, 4, _FLOAT, shape)
        return _array(rows, 8, _INT64, shape) if kind == KIND_INT64 else None

    cdef int aim(self, column_output *out, int kind, object values, int64_t at) except -1:
        """Make a chunk write its values from position `at`."""
        if kind == KIND_FLOAT:
            out.sink.floats = <uint32_t *> _pointer(values) + at
        elif kind == KIND_INT64:
            out.sink.ints = <int64_t *> _pointer(values) + at
        elif kind == KIND_BYTES:
            out.sink.offsets = <int64_t *> _pointer(values[0]) + at
            out.sink.lengths = <int64_t *> _pointer(values[1]) + at
            if values[2] is not None:
                out.buffers = <int32_t *> _pointer(values[2]) + at
        return 0

    cdef object settle_kinds(self):
        """The kind of columns for which any will do; a failure where the chunks met different ones, else None."""
        cdef decode_chunk *chunk
        cdef int t, kind
        cdef Py_ssize_t i, c
        cdef int64_t slot
        cdef scan_column *column
        failure = None
        for t in range(self.decoder.num_tables):
            for i in range(len(self.columns[t])):
                if self.chunks.items[0].tables[t].columns[i].kind != KIND_UNKNOWN:
                    continue
                kind = KIND_UNKNOWN
                for c in range(self.chunks.count):
                    chunk = &self.chunks.items[c]
                    if chunk.outputs[t][i].kind == KIND_UNKNOWN or chunk.outputs[t][i].kind == kind:
                        continue
                    if kind == KIND_UNKNOWN:
                        kind = chunk.outputs[t][i].kind
                        continue
                    column = &chunk.tables[t].columns[i]
                    slot = 0
                    while column.slots[slot].shape <= SLOT_NO_KIND:
                        slot += 1
                    row = chunk.first + column_row(&chunk.tables[t], column, slot)
                    if failure is None or row < failure[1]:
                        step = slot - column.steps[row - chunk.first] if t else -1
                        failure = (
                            WIRE_KIND_CONFLICT, row, self.columns[t][i][0], kind, chunk.outputs[t][i].kind, step
                        )
                self.columns[t][i][1] = kind
        return failure

    cdef int allocate_values(self) except -1:
        """The values of ragged columns, now that they are counted; 0 where all are there already."""
        cdef decode_chunk *chunk
        cdef int t, kind, needed = 0
        cdef bint filled
        cdef Py_ssize_t i, c
        cdef int64_t total, slot, base
        cdef column_output *out
        for t in range(self.decoder.num_tables):
            for i, column in enumerate(self.columns[t]):
                if column[4] is None:
                    continue
                kind = column[1]
                total = 0
                filled = column[5] is not None
                for c in range(self.chunks.count):
                    out = &self.chunks.items[c].outputs[t][i]
                    total += out.total
                    filled = filled and (out.sink.ints or out.sink.floats or out.sink.offsets)
                if not filled:
                    needed = 1
                    column[5] = None  # its memory may be used for the next
                    column[5] = self.new_values(kind, total)
                elif total + 1 < len(column[4]):  # records were left out
                    column[5] = _first_values(total, column[5])
                base = 0
                for c in range(self.chunks.count):
                    chunk = &self.chunks.items[c]
                    out = &chunk.outputs[t][i]
                    out.filled = filled
                    if not filled:
                        out.sink.limit = out.total
                        self.aim(out, kind, column[5], base)
                    if base:
                        for slot in range(chunk.tables[t].columns[i].num_slots):
                            out.splits[slot] += base
                    base += out.total
        return needed

    cdef tuple results(self, int t):
        cdef int64_t rows = self.chunks.rows()
        present = self.present[t]
        if self.plain is not None:
            if rows < self.rows:  # records were left out, so there is unused room
                return present[:, :rows], {key: values[:rows] for key, values in self.plain.items()}
            return present, self.plain
        if t:
            return present, [tuple(column) for column in self.columns[1]]
        columns = [(key, kind, splits, values) for key, kind, _, _, splits, values in self.columns[0]]
        if rows < self.rows:
            present = present[:, :rows]
            columns = [(key, kind, *_first_rows(rows, splits, values)) for key, kind, splits, values in columns]
        return present, columns


cdef tuple _first_rows(int64_t rows, object splits, object values):
    return (None, _first_values(rows, values)) if splits is None else (splits[:rows + 1], values)


cdef object _first_values(int64_t count, object values):
    if isinstance(values, tuple):
        return tuple([None if part is None else part[:count] for part in values])
    return values[:count]
