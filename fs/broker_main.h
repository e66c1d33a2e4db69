/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_main.h - the server for core/sandbox/broker.h.
 */
#ifndef PYTREEFS_FS_BROKER_MAIN_H
#define PYTREEFS_FS_BROKER_MAIN_H

/* Serve requests from the socket at stdin until it is closed. Returns the exit status. */
int broker_main(void);

#endif
