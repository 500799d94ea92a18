"""Test, train, validation and calibration splits, nested label subsets, and the classes that may be scored.

Everything follows from hashes of group ids, so a split depends neither on row order nor on platform, library version
or number of workers. Group and label columns alone decide: no image is opened here.
"""

from crs_assets.science.splits.assignment import (
    CALIBRATION,
    ROLES,
    TEST,
    TRAIN,
    VALIDATION,
    RoleType,
    Splits,
    assign_test,
    split_seed,
)
from crs_assets.science.splits.eligibility import eligible_classes, eligible_names, eligible_target_classes
from crs_assets.science.splits.leakage import LeakError, check_no_leak
from crs_assets.science.splits.official import take_official_test

__all__ = [
    "CALIBRATION",
    "ROLES",
    "TEST",
    "TRAIN",
    "VALIDATION",
    "LeakError",
    "RoleType",
    "Splits",
    "assign_test",
    "check_no_leak",
    "eligible_classes",
    "eligible_names",
    "eligible_target_classes",
    "split_seed",
    "take_official_test",
]
