/* New NumPy arrays, made in C: a batch of few records costs mostly its arrays, and calling numpy.empty for each takes
 * more than twice as long.
 *
 * The functions come from NumPy's table of C functions, so that a build needs no headers of NumPy. Their places in the
 * table, and where an array has the address of its first item, are part of NumPy's ABI: they are the same in NumPy 1
 * and 2.
 */
#ifndef TFRECORD_NDARRAY_H
#define TFRECORD_NDARRAY_H

#include <Python.h>

enum { NDARRAY_NEW_FROM_DESCR = 94, NDARRAY_SET_BASE_OBJECT = 282 };

typedef PyObject *(*ndarray_new_function)(
    PyTypeObject *, PyObject *, int, const Py_ssize_t *, const Py_ssize_t *, void *, int, PyObject *);
typedef int (*ndarray_base_function)(PyObject *, PyObject *);

static ndarray_new_function ndarray_create;
static ndarray_base_function ndarray_set_base;

/* Takes the functions from the capsule `_ARRAY_API`. */
static int ndarray_start(PyObject *capsule) {
    void **table = (void **)PyCapsule_GetPointer(capsule, NULL);
    if (!table) return -1;
    ndarray_create = (ndarray_new_function)table[NDARRAY_NEW_FROM_DESCR];
    ndarray_set_base = (ndarray_base_function)table[NDARRAY_SET_BASE_OBJECT];
    return 0;
}

/* The address of the first item. */
static inline void *ndarray_data(PyObject *array) {
    return ((struct { PyObject_HEAD void *data; } *)array)->data;
}

/* A new array in C order that owns its memory; or, with `owner`, one in the owner's memory at `data`. */
static inline PyObject *ndarray_new(
    PyObject *type, PyObject *dtype, int dims, const Py_ssize_t *shape, void *data, PyObject *owner) {
    const int flags = 0x501; /* in C order, aligned, writeable */
    PyObject *array;
    Py_INCREF(dtype); /* the function takes a reference of its own */
    array = ndarray_create((PyTypeObject *)type, dtype, dims, shape, NULL, data, data ? flags : 0, NULL);
    if (!array || !owner) return array;
    Py_INCREF(owner);
    if (ndarray_set_base(array, owner)) Py_CLEAR(array);
    return array;
}

#endif
