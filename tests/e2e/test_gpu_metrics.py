"""Tests that metrics of a device are exported while the driver reports them, and no others."""

import pathlib
import unittest

import harness

LIBRARIES = harness.BIN.parent / "tests" / "nvml"


class GpuMetrics(harness.DaemonTest):
    def start_with_gpus(self, lines):
        self.devices = pathlib.Path(self.data_dir) / "gpus"
        self.devices.write_text(lines)
        return self.start("--workers-program", str(harness.FAKE_WORKER), "--workers-devices",
                          "cuda:0", environment={"LD_LIBRARY_PATH": str(LIBRARIES),
                                                 "GENESIS_FAKE_NVML": str(self.devices)})

    def series(self, daemon):
        """Returns the values of the device metrics by series."""
        lines = [line.rsplit(" ", 1) for line in daemon.get("/metrics").splitlines()
                 if line.startswith("genesis_gpu_")]
        return {name: float(value) for name, value in lines}

    def test_figures_of_the_driver_in_base_units(self):
        daemon = self.start_with_gpus("H100 GPU-a 85899345920 1073741824 93 612500 71 0x44\n")
        seen = harness.wait_for("figures of the device", lambda: self.series(daemon))
        labels = 'deployment="stable",device="cuda:0"'
        self.assertEqual(seen, {
            f"genesis_gpu_memory_used_bytes{{{labels}}}": 1 << 30,
            f"genesis_gpu_memory_total_bytes{{{labels}}}": 80 << 30,
            f"genesis_gpu_utilization_ratio{{{labels}}}": 0.93,
            f"genesis_gpu_power_watts{{{labels}}}": 612.5,
            f"genesis_gpu_temperature_celsius{{{labels}}}": 71,
            f'genesis_gpu_throttled{{{labels},reason="sw_power_cap"}}': 1,
            f'genesis_gpu_throttled{{{labels},reason="hw_thermal_slowdown"}}': 1,
        })

    def test_what_is_no_longer_measured_is_no_longer_shown(self):
        daemon = self.start_with_gpus("H100 GPU-a 85899345920 1073741824 93 612500 71 0\n")
        harness.wait_for("figures of the device", lambda: self.series(daemon))
        self.devices.unlink()
        harness.wait_for("their end", lambda: not self.series(daemon))


if __name__ == "__main__":
    unittest.main()
