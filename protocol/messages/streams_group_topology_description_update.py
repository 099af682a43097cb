"""StreamsGroupTopologyDescriptionUpdate (93): the processing graph of a Kafka Streams group, for
those who describe the group (KIP-1331).

0  the first
"""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int16, int32, string, struct


class TopologyNode(Struct):
    name: str = string()
    # 1 source, 2 processor, 3 sink.
    node_type: int = int8()
    source_topics: list[str] = array(string)
    sink_topic: str | None = string(nullable="", default=None)
    stores: list[str] = array(string)
    successors: list[str] = array(string)


class StreamsGroupTopologyDescriptionUpdateRequest(Message, key=93, versions="0", flexible="0+"):
    class TopologyDescription(Struct):
        class Subtopology(Struct):
            subtopology_id: str = string()
            nodes: list[TopologyNode] = array(TopologyNode)

        class GlobalStore(Struct):
            source: TopologyNode = struct(TopologyNode)
            processor: TopologyNode = struct(TopologyNode)

        subtopologies: list[Subtopology] = array(Subtopology)
        global_stores: list[GlobalStore] = array(GlobalStore)

    group_id: str = string()
    member_id: str = string()
    topology_epoch: int = int32()
    topology_description: TopologyDescription = struct(TopologyDescription)


class StreamsGroupTopologyDescriptionUpdateResponse(Message, key=93, versions="0", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="", default=None)


def refused(
    request: StreamsGroupTopologyDescriptionUpdateRequest, code: int
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """An answer of an error and nothing else."""
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=code)
