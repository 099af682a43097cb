"""The transaction coordinator, for handlers, Produce and periodic tasks.

Most brokers never see a transaction. So what does the work is imported when a transactional id is
first looked for, or when a start finds `__transaction_state` (`make_runtime`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.partitions.internal_topics import TRANSACTION_TOPIC
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker.coordinator.transactions.runtime import TransactionRuntime
    from broker.partitions.topic import Partition
    from broker.partitions.topics import Topics
    from storage.log import Log

    Kind = Callable[..., TransactionRuntime]


class TransactionCoordinator:
    """All transactional ids of this broker. Belongs to the loop."""

    def __init__(self, topics: Topics, make_runtime: Callable[[Kind], TransactionRuntime]) -> None:
        """`make_runtime` is called once, with the kind to make, when the part that does the work is
        first needed."""
        self._topics = topics
        self._make_runtime = make_runtime
        self._runtime: TransactionRuntime | None = None

    @property
    def runtime(self) -> TransactionRuntime:
        """The part that does the work, made at first use."""
        if self._runtime is None:
            self._runtime = self._make_runtime(self._kind())
        return self._runtime

    def _kind(self) -> Kind:
        from broker.coordinator.transactions.runtime import TransactionRuntime

        return TransactionRuntime

    @property
    def is_there(self) -> bool:
        """Whether the state topic is; without it no transactional id is known."""
        return TRANSACTION_TOPIC in self._topics.by_name

    def start(self) -> None:
        """Begin to load what an earlier run, or Apache Kafka, has left."""
        if self.is_there:
            self.runtime.take_topic()

    def stop(self) -> None:
        """Write nothing more; what is half done is finished by the next start."""
        if self._runtime is not None:
            self._runtime.stop()

    def moved(self, partition: Partition) -> None:
        """A partition of the state topic is led by another process from now on, or by this one."""

    def is_at_work_on(self, log: Log) -> bool:
        """Whether this log is being loaded. May be asked on any thread."""
        return self._runtime is not None and self._runtime.loads.is_at_work_on(log)

    def require_topic(self) -> None:
        """Somebody looks for the coordinator of a transactional id. Raises NeededFirst; KafkaError:
        COORDINATOR_NOT_AVAILABLE where the topic could not be made."""
        self.runtime.require_topic()

    def leader_id(self, transactional_id: str) -> int:
        """The id of the broker that coordinates an id. The topic has to be there."""
        return self.runtime.leader_id(transactional_id)

    def includes(
        self, transactional_id: str, producer_id: int, epoch: int, partition: tuple[str, int]
    ) -> bool:
        """Whether this partition is known to belong to the open transaction of this producer: the
        question of nearly every batch, without the reasons that `verify` gives."""
        runtime = self._runtime
        if runtime is None:
            return False
        now = runtime.ends.ongoing.get(transactional_id)
        return (
            now is not None
            and partition in now.partitions
            and now.producer_id == producer_id
            and now.epoch == epoch
        )

    def ask_first(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Iterable[tuple[str, int]],
        *,
        add: bool,
    ) -> None:
        """See that `verify` can be answered. Raises AskedFirst where the coordinator is another
        process and has to be asked; here it is this one."""

    def ended(self, producer_id: int, partitions: Iterable[tuple[str, int]]) -> None:
        """A transaction of this producer ends in these partitions, by the decision of whoever
        coordinates it."""

    def left(self, partitions: Iterable[tuple[str, int]]) -> None:
        """These partitions are led elsewhere from now on, or have been deleted."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[tuple[str, int]],
        *,
        add: bool,
    ) -> None:
        """Whether these partitions belong to the open transaction of this producer.

        With `add` (TV2: Produce v12 and later, TxnOffsetCommit v5) they are made so, and the record
        that says it is in the file of the state topic.

        Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH,
        CONCURRENT_TRANSACTIONS while the end of the last one is under way, TRANSACTION_ABORTABLE
        for a partition that was not added, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE
        when the disk refuses.
        """
        if not self.is_there:
            raise KafkaError(
                f"transactional id {transactional_id!r} is not known",
                code=ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            )
        try:
            self.runtime.verify(transactional_id, producer_id, epoch, partitions, add=add)
        except KafkaError as error:
            if error.code is not ErrorCode.PRODUCER_FENCED:
                raise
            # Kafka's partitions say it so in every version.
            raise KafkaError(str(error), code=ErrorCode.INVALID_PRODUCER_EPOCH) from None

    def look_for_timed_out(self) -> None:
        """Abort the transactions whose time is up."""
        if self._runtime is not None:
            self._runtime.look_for_timed_out()

    def look_for_expired(self) -> None:
        """Forget the ids that nobody has used for transactional.id.expiration.ms."""
        if self._runtime is not None:
            self._runtime.look_for_expired()
