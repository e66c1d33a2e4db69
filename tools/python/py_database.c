// SPDX-License-Identifier: Apache-2.0
/*
 * py_database.c - the function write_database(): arrays of Python -> pytreefs_database_write().
 */
#include "tools/python/py_module.h"

/* An array, and the memory that its parts borrow. */
struct array_memory {
	uint64_t *numbers;
	struct pytreefs_part *part;
	Py_buffer *buffer;
	Py_ssize_t n_buffers;
};

/* Parse a tuple of n numbers. */
static int py_database_parse_numbers(PyObject *tuple, Py_ssize_t n, uint64_t *ret)
{
	if (PyTuple_Size(tuple) != n) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ValueError, "one number for each axis");
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		ret[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
		if (PyErr_Occurred())
			return -1;
	}
	return 0;
}

/* Parse (start, buffer) of n axes; numbers has room for three times as many. */
static int parse_part(PyObject *tuple, Py_ssize_t n, struct array_memory *m, uint64_t *numbers,
		      struct pytreefs_part *part)
{
	PyObject *start, *data;
	if (!PyArg_ParseTuple(tuple, "OO", &start, &data) ||
	    py_database_parse_numbers(start, n, numbers) < 0 ||
	    PyObject_GetBuffer(data, &m->buffer[m->n_buffers], PyBUF_STRIDED_RO) < 0)
		return -1;
	const Py_buffer *b = &m->buffer[m->n_buffers++];
	if (b->ndim != n) {
		PyErr_SetString(PyExc_ValueError, "a part has the axes of its array");
		return -1;
	}
	int64_t *strides = (int64_t *)(numbers + 2 * n);
	for (Py_ssize_t i = 0; i < n; i++) {
		numbers[n + i] = (uint64_t)b->shape[i];
		strides[i] = b->strides[i];
	}
	*part = (struct pytreefs_part){
		.start = numbers, .shape = numbers + n, .strides = strides, .data = b->buf
	};
	return 0;
}

/* Parse (name, dtype, dtype in memory, shape, chunk, parts, flags). */
static int parse_array(PyObject *tuple, struct array_memory *m, struct pytreefs_stored_array *a)
{
	PyObject *shape, *chunk, *parts;
	if (!PyArg_ParseTuple(tuple, "sssOOOI", &a->name, &a->dtype, &a->memory_dtype, &shape,
			      &chunk, &parts, &a->flags))
		return -1;
	Py_ssize_t n = PyTuple_Size(shape), n_parts = PyList_Size(parts);
	if (n < 0 || n_parts < 0)
		return -1;
	m->numbers = PyMem_Calloc((size_t)((2 + 3 * n_parts) * n + 1), sizeof(*m->numbers));
	m->part = PyMem_Calloc((size_t)n_parts + 1, sizeof(*m->part));
	m->buffer = PyMem_Calloc((size_t)n_parts + 1, sizeof(*m->buffer));
	if (!m->numbers || !m->part || !m->buffer) {
		PyErr_NoMemory();
		return -1;
	}
	if (py_database_parse_numbers(shape, n, m->numbers) < 0 ||
	    py_database_parse_numbers(chunk, n, m->numbers + n) < 0)
		return -1;
	a->ndim = (size_t)n;
	a->shape = m->numbers;
	a->chunk = m->numbers + n;
	a->part = m->part;
	a->n_parts = (size_t)n_parts;
	for (Py_ssize_t i = 0; i < n_parts; i++) {
		if (parse_part(PyList_GetItem(parts, i), n, m, m->numbers + (2 + 3 * i) * n,
			       &m->part[i]) < 0)
			return -1;
	}
	return 0;
}

PyObject *py_write_database(PyObject *self, PyObject *args)
{
	PyObject *path, *list, *fn;
	const char *options;
	if (!PyArg_ParseTuple(args, "UsOO", &path, &options, &list, &fn))
		return NULL;
	Py_ssize_t n = PyList_Size(list);
	PyObject *where = n < 0 ? NULL : py_encode(path);
	if (!where)
		return NULL;
	struct pytreefs_stored_array *array = PyMem_Calloc((size_t)n + 1, sizeof(*array));
	struct array_memory *memory = PyMem_Calloc((size_t)n + 1, sizeof(*memory));
	int ok = array && memory;
	if (!ok)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; ok && i < n; i++)
		ok = parse_array(PyList_GetItem(list, i), &memory[i], &array[i]) == 0;
	if (ok) {
		const char *to = PyBytes_AsString(where);
		struct py_progress p;
		py_progress_begin(&p, fn);
		int r = pytreefs_database_write(to, options, array, (size_t)n, &p.progress);
		py_progress_end(&p);
		if (r < 0 && !p.raised)
			py_fail(NULL);
	}
	for (Py_ssize_t i = 0; memory && i < n; i++) {
		for (Py_ssize_t k = 0; k < memory[i].n_buffers; k++)
			PyBuffer_Release(&memory[i].buffer[k]);
		PyMem_Free(memory[i].buffer);
		PyMem_Free(memory[i].part);
		PyMem_Free(memory[i].numbers);
	}
	PyMem_Free(memory);
	PyMem_Free(array);
	Py_DECREF(where);
	if (PyErr_Occurred())
		return NULL;
	Py_RETURN_NONE;
}
