# SPDX-License-Identifier: Apache-2.0
"""The GPU's SM clock and power, sampled by a thread while something runs on it."""

import statistics
import threading
import time

try:
    import pynvml
except ImportError:  # then the figures are None, and the rest works
    pynvml = None

PERIOD = 0.005  # seconds between samples


class Watch:
    """with Watch() as watch: ...; watch.during([(begin, end), ...]) in monotonic seconds."""

    def __init__(self):
        self.samples = []  # (time, MHz, W)
        self.stop = threading.Event()
        self.handle = None
        self.thread = threading.Thread(target=self.sample, daemon=True)

    def __enter__(self):
        if pynvml:
            pynvml.nvmlInit()
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            self.thread.start()
        return self

    def __exit__(self, *unused):
        if self.handle:
            self.stop.set()
            self.thread.join()
            pynvml.nvmlShutdown()

    def driver(self):
        if not self.handle:
            return ""
        text = pynvml.nvmlSystemGetDriverVersion()
        return text.decode() if isinstance(text, bytes) else text

    def sample(self):
        while not self.stop.wait(PERIOD):
            try:
                mhz = pynvml.nvmlDeviceGetClockInfo(self.handle, pynvml.NVML_CLOCK_SM)
                watts = pynvml.nvmlDeviceGetPowerUsage(self.handle) / 1000
            except pynvml.NVMLError:
                continue
            self.samples.append((time.monotonic(), mhz, watts))

    def during(self, spans):
        """Medians of the samples inside the spans; None where there was none."""
        first = min((begin for begin, _ in spans), default=0)
        inside = [s for s in self.samples if s[0] >= first and
                  any(begin <= s[0] <= end for begin, end in spans)]
        if not inside:
            return {"mhz": None, "watts": None}
        return {"mhz": statistics.median(s[1] for s in inside),
                "watts": statistics.median(s[2] for s in inside)}
