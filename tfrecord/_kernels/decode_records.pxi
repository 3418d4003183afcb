# Single records as dicts: included by decode.pyx.

cdef tuple _record(Decoder decoder, scan_table *tables):
    """The one record of the tables: a failure, its features, its feature lists."""
    cdef dict context = {}, lists = {}
    cdef scan_column *column
    cdef Py_ssize_t i
    failure = None
    for i in range(tables[0].num_columns):
        key = _key_text(&tables[0].columns[i]) if tables[0].discover else decoder.names[i][0]
        failure = _feature(&tables[0], i, 0, key, None, context)
        if failure is not None:
            return failure, {}, {}
    for i in range(tables[1].num_columns if decoder.num_tables == 2 else 0):
        column = &tables[1].columns[i]
        key = _key_text(column) if tables[1].discover else decoder.list_names[i][0]
        failure = _steps(column, &tables[1].parts, key, decoder.level, lists)
        if failure is not None:
            return failure, {}, {}
    return None, context, lists


cdef list _records(Decoder decoder, scan_table *table, _Payloads payloads, tuple shapes):
    """The records until one that fails. Each is made before the next one is read, while its slots are in the cache."""
    cdef list found = [], keys = [item[0] for item in decoder.names], order = list(range(table.num_columns))
    # The keys of the record in their order, without values: a copy takes less time than to put them in one by one.
    cdef dict form = decoder.keys, context
    cdef int64_t row
    cdef Py_ssize_t i
    cdef int status, seen
    for row in range(payloads.count):
        if not repeat_read(table, &payloads.records[row], row):
            status = record_read(table, NULL, &payloads.records[row], row, &seen)
            if status == WIRE_NO_MEMORY:
                raise MemoryError
            if status:
                break
            repeat_learn(table, row)
            if table.discover:
                for i in range(len(keys), table.num_columns):
                    keys.append(_key_text(&table.columns[i]))
                order = _found_order(table, row)
                form = dict.fromkeys([keys[i] for i in order])
                if len(order) < len(keys):  # a repeat has every column
                    table.num_repeated = 0
        context = form.copy()
        for i in order:
            if _feature(table, i, row, keys[i], None if shapes is None else shapes[i], context) is not None:
                return found
        found.append(context)
    return found


cdef list _found_order(const scan_table *table, uint64_t row):
    """The columns of the record just read, in its own order."""
    cdef Py_ssize_t i
    order = [None] * table.found
    for i in range(table.num_columns):
        if table.columns[i].seen == row + 1:
            order[table.columns[i].turn] = i
    return order


cdef object _feature(const scan_table *table, Py_ssize_t i, int64_t row, object key, tuple shape, dict context):
    """Puts one feature into a record's dict; a failure, or None."""
    cdef const scan_column *column = &table.columns[i]
    cdef const feature_slot *slot = &column.slots[row]
    cdef int kind, status
    if column.fallback == NULL and slot.shape <= SLOT_NO_KIND and not table.discover:
        if slot.shape == SLOT_ABSENT:
            return WIRE_MISSING, 0, key, 0, 0, -1
        if column.count >= 0:
            return WIRE_MISSING, 0, key, 2, 0, -1
    kind = slot.kind if slot.shape > SLOT_NO_KIND else column.kind
    if column.kind and kind != column.kind:
        return WIRE_KIND_MISMATCH, 0, key, column.kind, kind, -1
    if shape is None:
        value = _value(slot, &table.parts, 3, kind, table.level, &status)
    else:
        value = _dense_value(column, slot, &table.parts, shape, table.level, &status)
    if status:
        return status, 0, key, 0, 0, -1
    context[key] = value
    return None


cdef object _steps(scan_column *column, const feature_parts *parts, object key, int level, dict lists):
    """Puts one feature list into a record's dict; a failure, or None."""
    cdef feature_slot *slot
    cdef int64_t step
    cdef int kind = column.kind, status
    if not column.listed[0] and column.fallback == NULL:
        return WIRE_MISSING, 0, key, 0, 0, -1
    for step in range(column.num_slots):
        slot = &column.slots[step]
        if slot.shape <= SLOT_NO_KIND:
            if column.count >= 0 and column.fallback == NULL:
                return WIRE_MISSING, 0, key, 2, 0, step
        elif slot.kind != kind:
            if kind:
                return WIRE_KIND_MISMATCH if column.kind else WIRE_KIND_CONFLICT, 0, key, kind, slot.kind, step
            kind = slot.kind
    steps = []
    for step in range(column.num_slots):
        steps.append(_value(&column.slots[step], parts, 4, kind, level, &status))
        if status:
            return status, 0, key, 0, 0, step
    lists[key] = steps
    return None


cdef object _dense_value(const scan_column *column, const feature_slot *slot, const feature_parts *parts, tuple shape,
                         int level, int *status):
    """One record's numbers as an array of this shape. A status if they do not fill it."""
    cdef Py_ssize_t sizes[_MOST_DIMS]
    cdef int dims = 0, itemsize = 4 if column.kind == KIND_FLOAT else 8
    cdef int64_t total = 1
    cdef feature_sink sink
    cdef void *data
    for length in shape[:_MOST_DIMS]:
        sizes[dims] = length
        total *= sizes[dims]
        dims += 1
    if dims < len(shape) or total != column.count:
        status[0] = WIRE_WRONG_COUNT
        return None
    array = _new_array(dims, sizes, itemsize, _FLOAT if column.kind == KIND_FLOAT else _INT64)
    data = _pointer(array)
    memset(&sink, 0, sizeof(sink))
    sink.level = level
    sink.limit = column.count
    if column.kind == KIND_FLOAT:
        sink.floats = <uint32_t *> data
    else:
        sink.ints = <int64_t *> data
    status[0] = slot_values(slot, parts, 3, &sink) if slot.shape > SLOT_NO_KIND else 0
    if not status[0] and not sink.count and column.fallback != NULL:
        memcpy(data, column.fallback, column.count * itemsize)
    elif not status[0] and sink.count != column.count:
        status[0] = WIRE_WRONG_COUNT
    return array


cdef object _value(const feature_slot *slot, const feature_parts *parts, int depth, int kind, int level, int *status):
    """One record's values of a feature: bytes, an object array of bytes, an array of numbers; None without a kind."""
    cdef feature_sink sink
    cdef int64_t count, i
    cdef int64_t *places
    status[0] = 0
    if kind == KIND_UNKNOWN:
        return None
    if slot.shape == SLOT_ONE:
        return PyBytes_FromStringAndSize(<const char *> <uintptr_t> slot.at, slot.length)
    if slot.shape == SLOT_VALUE:
        array = ndarray_new(_ndarray, _FLOAT if kind == KIND_FLOAT else _INT64, 1, &_ONE, NULL, NULL)
        if kind == KIND_FLOAT:
            (<uint32_t *> _pointer(array))[0] = <uint32_t> slot.at
        else:
            (<int64_t *> _pointer(array))[0] = <int64_t> slot.at
        return array
    memset(&sink, 0, sizeof(sink))
    sink.level = level
    status[0] = slot_values(slot, parts, depth, &sink)
    if status[0]:
        return None
    count = sink.limit = sink.count
    sink.count = 0
    if kind == KIND_BYTES:
        places = <int64_t *> malloc((2 * count + 1) * sizeof(int64_t))
        if places == NULL:
            raise MemoryError
        sink.offsets, sink.lengths, sink.base = places, places + count, NULL
        try:
            status[0] = slot_values(slot, parts, depth, &sink)
            if sink.count != count and not status[0]:
                status[0] = WIRE_CHANGED
            if status[0]:
                return None
            found = [
                PyBytes_FromStringAndSize(<const char *> <uintptr_t> places[i], places[count + i]) for i in range(count)
            ]
        finally:
            free(places)
        if count == 1:
            return found[0]
        array = _empty(count, _OBJECT)
        array[:] = found
        return array
    array = _empty(count, _FLOAT if kind == KIND_FLOAT else _INT64)
    if kind == KIND_FLOAT:
        sink.floats = <uint32_t *> _pointer(array)
    else:
        sink.ints = <int64_t *> _pointer(array)
    status[0] = slot_values(slot, parts, depth, &sink)
    if sink.count != count and not status[0]:
        status[0] = WIRE_CHANGED
    return array
