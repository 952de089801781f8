//$ -- SPDX-License-Identifier: Apache-2.0
//$ if arch ~= "sm_80" then
/* Earlier launches have ended, and their writes are visible: before that nothing of the
   device's memory is read or written. CTAs of the next launch may come meanwhile. */
asm volatile("griddepcontrol.wait;" : : : "memory");
asm volatile("griddepcontrol.launch_dependents;");
//$ end
