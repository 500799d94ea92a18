"""Partitions of a suite and the mappings between them, all derived from the suite; nothing is listed twice here.

A multi-partition key sorts by dimension name, so ``encoder`` leads: ``panderm|isic2019.s0``. Data sets that every
encoder has come first in a suite, so that an encoder's existing cells are one contiguous range.
"""

from dataclasses import dataclass

import dagster as dg

from crs_assets.science.suite import Suite, task_key

ENCODER = "encoder"
IMAGE_SET = "image_set"
TASK = "task_seed"
SEPARATOR = "|"


@dataclass(frozen=True)
class Partitions:
    """The partition definitions of one suite."""

    encoder: dg.DynamicPartitionsDefinition
    image_set: dg.StaticPartitionsDefinition
    task: dg.StaticPartitionsDefinition
    encoder_by_image_set: dg.MultiPartitionsDefinition
    encoder_by_task: dg.MultiPartitionsDefinition
    suite: Suite

    @property
    def image_set_to_tasks(self) -> dg.StaticPartitionMapping:
        """A data set, or the target of one, feeds every seed of the data set."""
        seeds = self.suite.protocol.data.seeds
        return dg.StaticPartitionMapping(
            {
                image_set: [task_key(self.suite.source_of(image_set) or image_set, seed) for seed in seeds]
                for image_set in self.suite.image_sets
            }
        )

    @property
    def features_to_probes(self) -> dg.MultiPartitionMapping:
        """The same encoder; a data set, or the target of one, to every seed of the data set."""
        return dg.MultiPartitionMapping(
            {
                ENCODER: dg.DimensionPartitionMapping(ENCODER, dg.IdentityPartitionMapping()),
                IMAGE_SET: dg.DimensionPartitionMapping(TASK, self.image_set_to_tasks),
            }
        )

    @property
    def features_to_nulls(self) -> dg.SpecificPartitionsPartitionMapping:
        """Features of the encoder that shuffled labels are fitted on; no other encoder touches the null controls.

        No mapping of Dagster's leads from one encoder and a data set to that data set's seeds, and its UI could not
        load one of ours: so each seed hangs on that encoder's features of every data set.
        """
        encoder = self.suite.spec.shuffled_labels_encoder
        return dg.SpecificPartitionsPartitionMapping(
            [partition_key((encoder, dataset)) for dataset in self.suite.existing_datasets(encoder)]
        )

    @property
    def datasets_to_probes(self) -> dg.MultiPartitionMapping:
        """The same encoder; a data set to each of its seeds. Nothing depends on a transfer target."""
        seeds = self.suite.protocol.data.seeds
        tasks = {dataset: [task_key(dataset, seed) for seed in seeds] for dataset in self.suite.datasets}
        return dg.MultiPartitionMapping(
            {
                ENCODER: dg.DimensionPartitionMapping(ENCODER, dg.IdentityPartitionMapping()),
                IMAGE_SET: dg.DimensionPartitionMapping(TASK, dg.StaticPartitionMapping(tasks)),
            }
        )


def build_partitions(suite: Suite) -> Partitions:
    """Derive a suite's partitions."""
    encoder = dg.DynamicPartitionsDefinition(name=encoder_partitions_name(suite.id))
    image_set = dg.StaticPartitionsDefinition(list(suite.image_sets))
    task = dg.StaticPartitionsDefinition(suite.tasks)
    return Partitions(
        encoder=encoder,
        image_set=image_set,
        task=task,
        encoder_by_image_set=dg.MultiPartitionsDefinition({ENCODER: encoder, IMAGE_SET: image_set}),
        encoder_by_task=dg.MultiPartitionsDefinition({ENCODER: encoder, TASK: task}),
        suite=suite,
    )


def encoder_partitions_name(suite: str) -> str:
    """Name of a suite's dynamic partitions: suites share an instance and never mix."""
    return f"{suite}.{ENCODER}"


def key_parts(key: str) -> tuple[str, ...]:
    """The parts of a partition key, in the order of the store's folders; no id holds the separator."""
    return tuple(key.split(SEPARATOR))


def partition_key(parts: tuple[str, ...]) -> str:
    """The partition key of a store address."""
    return SEPARATOR.join(parts)
