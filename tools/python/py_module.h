/* SPDX-License-Identifier: Apache-2.0 */
/*
 * py_module.h - declarations shared by the files of the extension module.
 *
 * The module is thin: each type wraps a handle of pytreefs.h, and the Python package (pytreefs/)
 * makes the public interface from it. It is built for the stable ABI. Functions return NULL or a
 * negative number with an exception set on failure.
 */
#ifndef PYTREEFS_PY_MODULE_H
#define PYTREEFS_PY_MODULE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stddef.h>

#include "tools/lib/pytreefs.h"

/* pytreefs.Error. There is only one, since sub-interpreters are refused. */
extern PyObject *py_error;

/* Raise an exception with the thread's error text; filename NULL: the name that the library has. */
PyObject *py_fail(PyObject *filename);
/* The same; -ENOENT becomes a KeyError with this name. */
PyObject *py_fail_name(int r, PyObject *name);

/*
 * Convert between str and bytes of a name or key: UTF-8, with undecodable bytes as in
 * os.fsdecode().
 */
PyObject *py_encode(PyObject *text);
PyObject *py_decode(const char *p, size_t n);

/* Progress of a call that runs without the interpreter's lock: signals, and a callable. */
struct py_progress {
	struct pytreefs_progress progress;
	PyObject *fn; /* borrowed; NULL: none */
	PyThreadState *thread;
	int raised; /* an exception is set */
};
/* Call these around the call. fn: a callable, or None. */
void py_progress_begin(struct py_progress *p, PyObject *fn);
void py_progress_end(struct py_progress *p);

/* An opened checkpoint. */
struct py_checkpoint {
	PyObject ob_base;
	struct pytreefs *ck;
	PyObject *path;
	Py_ssize_t users; /* calls and files in progress: the last one closes it */
	int is_closing;
};
/*
 * Get the handle, or NULL with ValueError when it is closed. Call py_done() when the call has
 * ended.
 */
struct pytreefs *py_use(struct py_checkpoint *c);
void py_done(struct py_checkpoint *c);
/* Like py_use(), for a call that takes a name: negative with an exception set. Release `bytes`. */
struct py_name {
	struct pytreefs *ck;
	PyObject *bytes; /* holds text */
	const char *text;
};
int py_use_name(struct py_checkpoint *c, PyObject *name, struct py_name *ret);

extern PyType_Spec py_checkpoint_spec, py_file_spec, py_draft_spec, py_map_spec;
extern PyTypeObject *py_file_type, *py_map_type;

/* Methods of a checkpoint in files of their own. */
PyObject *py_map(PyObject *self, PyObject *args);
PyObject *py_read_many(PyObject *self, PyObject *args);
PyObject *py_tree(PyObject *self, PyObject *args);
PyObject *py_leaves(PyObject *self, PyObject *args);
PyObject *py_describe(PyObject *self, PyObject *args);
/* A function of the module. */
PyObject *py_write_database(PyObject *self, PyObject *args);

#endif
