/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker_main.h - the other side of core/sandbox/broker.h.
 */
#ifndef PYTREEFS_FS_BROKER_MAIN_H
#define PYTREEFS_FS_BROKER_MAIN_H

/* Serve requests from the socket that is stdin until it is closed: the exit status. */
int broker_main(void);

#endif
