"""From a scenario's tiers to links, pools and paths: which bytes cross what.

Links are named after what people order: ``<tier>`` (a device or an array's ports), ``<tier>.drives`` (the drives
behind ports), ``nic``, ``host-link`` (PCIe or C2C of a replica's GPUs), ``scale-up`` (the fabric between the GPUs of a
node, where replicas of one hand KV over); where there are several, the number of the node or replica follows a dot.
``links.<name>`` in a scenario overrides the catalogue's figures for all of them.
"""

from scenarios.topology.parts import Engines, Geometry, geometry
from scenarios.topology.wiring import Topology

__all__ = ["Engines", "Geometry", "Topology", "geometry"]
