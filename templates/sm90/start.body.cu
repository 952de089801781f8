//$ -- SPDX-License-Identifier: Apache-2.0
$(cluster.m * cluster.n > 1 and "cluster_sync" or "__syncthreads")();
