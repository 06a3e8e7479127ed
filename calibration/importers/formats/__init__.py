"""The formats that are read, a file each; each registers itself in `calibration.importers.reading`."""
