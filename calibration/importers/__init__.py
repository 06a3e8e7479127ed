"""Device files from what storage benchmarks and monitors print: `kvtier import-device`."""
