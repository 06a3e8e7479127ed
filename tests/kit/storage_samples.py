"""A small sound file of each format that `kvtier import-device` reads, written by hand as its documentation says."""

import json
from pathlib import Path

FIO_OF_A_RUN = Path(__file__).parent / "storage_files" / "fio-3.33.json"
"""What fio 3.33 wrote of a 64 MiB file on a shared virtual machine, without its percentiles."""

GDSIO = """\
dgx> gdsio -D /nvme/gds -d 2 -w 8 -s 500M -i 1M -x 0 -I 0 -T 120
IoType: READ XferType: GPUD Threads: 8 DataSetSize: 818796544/4096000(KiB) IOSize: 1024(KiB) Throughput: 6.500000 \
GiB/sec, Avg_Latency: 1201.923077 usecs ops: 799606 total_time 119.679102 secs
IoType: READ XferType: GPUD Threads: 1 DataSetSize: 20480/20480(KiB) IOSize: 4(KiB) Throughput: 0.040000 GiB/sec, \
Avg_Latency: 95.000000 usecs ops: 5120 total_time 0.488281 secs
IoType: WRITE XferType: GPUD Threads: 8 DataSetSize: 409398272/4096000(KiB) IOSize: 1024(KiB) Throughput: 3.250000 \
GiB/sec, Avg_Latency: 2403.846154 usecs ops: 399803 total_time 119.679102 secs
"""

NIXLBENCH = """\
****************************************************************************************************
NIXLBench Configuration
****************************************************************************************************
Runtime (--runtime_type=[etcd])                             : ETCD
Backend (--backend=[UCX,GDS,GDS_MT,POSIX,OBJ])              : POSIX
Op type (--op_type=[READ,WRITE])                            : READ
Start block size (--start_block_size=N)                     : 4096
Num threads (--num_threads=N)                               : 1
----------------------------------------------------------------------------------------------------

Block Size (B)      Batch Size     B/W (GB/Sec)   Avg Lat. (us)  Avg Prep (us)  P99 Prep (us)  Avg Post (us)  \
P99 Post (us)  Avg Tx (us)    P99 Tx (us)
----------------------------------------------------------------------------------------------------
4096                1              0.040960       100.0          45.0           45.0           9.1            \
10.0           90.9           113.0
1048576             1              2.097152       500.0          45.0           45.0           9.1            \
10.0           490.9          513.0
1048576             32             6.500000       161.3          45.0           45.0           9.1            \
10.0           5152.9         6513.0
Op type (--op_type=[READ,WRITE])                            : WRITE

Block Size (B)      Batch Size     Avg Lat. (us)  B/W (MiB/Sec)  B/W (GiB/Sec)  B/W (GB/Sec)
----------------------------------------------------------------------------------------------------
1048576             32             262.1          3814.7         3.72529        4.000000
"""

_ELBENCHO_HEADER = (
    "ISO date,label,path type,paths,hosts,threads,dirs,files,file size,block size,direct IO,random,random aligned,"
    "IO depth,shared paths,truncate,operation,time ms [first],time ms [last],entries/s [first],entries/s [last],"
    "IOPS [first],IOPS [last],MiB/s [first],MiB/s [last],CPU% [first],CPU% [last],entries [first],entries [last],"
    "MiB [first],MiB [last],Ent lat us [min],Ent lat us [avg],Ent lat us [max],IO lat us [min],IO lat us [avg],"
    "IO lat us [max],rwmix read MiB/s [first],rwmix read MiB/s [last],rwmix read IO lat us [avg],version,command"
)


def elbencho_row(
    operation: str,
    *,
    mib_per_s: float,
    latency_us: float = 0,
    reads_mib_per_s: str = "",
    threads: int = 8,
    block: int = 2**20,
) -> str:
    """A row of two hosts."""
    lead = f"2026-05-22T16:09:41,,file,1,2,{threads},1,4,268435456,{block},1,0,,4,1,0,{operation},846,905,,"
    rates = f",{mib_per_s},{mib_per_s},{mib_per_s},{mib_per_s},9,8,32,32,8192,8192,1,2,3,1,{latency_us},9"
    return f"{lead}{rates},{reads_mib_per_s},{reads_mib_per_s},,3.0-1,./elbencho -r"


ELBENCHO = "\n".join(
    [
        _ELBENCHO_HEADER,
        elbencho_row("MKDIRS", mib_per_s=0),
        elbencho_row("WRITE", mib_per_s=4000, latency_us=16000),
        elbencho_row("READ", mib_per_s=8000, latency_us=8000),
        _ELBENCHO_HEADER,
        elbencho_row("RWMIX70", mib_per_s=1800, latency_us=9000, reads_mib_per_s="4200"),
        "",
    ]
)

MLPERF = json.dumps(
    {
        "requests_completed": 549,
        "total_storage_io_latency": 553.2,
        "end_to_end_latencies": [0.3, 0.4],
        "summary": {
            "cache_stats": {
                "cache_hit_rate": 0.93,
                "tier_storage_read_bandwidth_gbps": 3.0,
                "tier_storage_write_bandwidth_gbps": 0.25,
                "storage_read_device_p50_ms": 36.0,
            }
        },
    },
    indent=4,
)

MLPERF_SUMMARY = json.dumps(
    {"options": {"1": {"aggregated_read_bandwidth_gbps": 4.0, "aggregated_write_bandwidth_gbps": 1.0}}}
)

_IOSTAT_HEADER = (
    "Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await "
    "wareq-sz     d/s     dkB/s   drqm/s  %drqm d_await dareq-sz     f/s f_await  aqu-sz  %util"
)


def iostat_row(disk: str, read_kb: float, write_kb: float = 0.0, wait_ms: float = 1.0) -> str:
    """A row whose requests are 512 kB each."""
    side = "{:.2f} {:.2f} 0.00 0.00 {:.2f} 512.00"
    reads, writes = (side.format(kb / 512, kb, wait_ms if kb else 0.0) for kb in (read_kb, write_kb))
    return f"{disk} {reads} {writes} 0.00 0.00 0.00 0.00 0.00 0.00 0.00 0.00 3.00 99.00"


def iostat_log(*reports: list[str]) -> str:
    """A log of `iostat -x 1`."""
    cpu = "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n   60.50    0.11    4.22    1.48    0.21   33.48\n"
    bodies = (f"{cpu}\n{_IOSTAT_HEADER}\n" + "\n".join(rows) + "\n\n" for rows in reports)
    return "Linux 6.8.0 (host) \t12/02/26 \t_x86_64_\t(64 CPU)\n\n" + "\n".join(bodies)


IOSTAT = iostat_log(
    [iostat_row("nvme0n1", 999999.0)],
    [iostat_row("nvme0n1", 1_000_000.0, wait_ms=0.5)],
    [iostat_row("nvme0n1", 6_800_000.0, wait_ms=4.0)],
    [iostat_row("nvme0n1", 6_600_000.0, wait_ms=4.0)],
    [iostat_row("nvme0n1", 0.0, 2_000_000.0, wait_ms=0.3)],
)

SAMPLES = {
    "elbencho": ELBENCHO,
    "fio": FIO_OF_A_RUN.read_text(encoding="utf-8"),
    "gdsio": GDSIO,
    "iostat": IOSTAT,
    "mlperf-kvcache": MLPERF,
    "nixlbench": NIXLBENCH,
}
