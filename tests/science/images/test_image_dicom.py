"""DICOM: the standard's order of operations, on files made here and on real ones."""

import builtins
import io
import logging

import numpy as np
import pytest

from crs_assets.science.images import ImageError, has_burned_in_annotation, load_image, read_image

pydicom = pytest.importorskip("pydicom", reason="DICOM files are read by an optional package")

RAMP = np.linspace(0, 4095, 40 * 40).round().astype(np.uint16).reshape(40, 40)
SECRET = "DOE^JANE"


LUT_CUT_SHORT = pydicom.Dataset()
LUT_CUT_SHORT.LUTDescriptor = [4096, 0, 12]
LUT_CUT_SHORT.add_new("LUTData", "OW", b"\0\0")


def dicom(pixels=RAMP, *, syntax=None, preamble=True, **elements):
    """A file of 12 stored bits around these pixels, with a patient's name in it."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian

    dataset = Dataset()
    dataset.SpecificCharacterSet = "ISO_IR 100"
    dataset.PatientName, dataset.PatientID = SECRET, "MRN-4711"
    facts = {
        "Rows": pixels.shape[0], "Columns": pixels.shape[1], "SamplesPerPixel": 1,
        "PhotometricInterpretation": "MONOCHROME2", "BitsAllocated": 16, "BitsStored": 12, "HighBit": 11,
        "PixelRepresentation": 0, "PixelData": pixels.tobytes(),
    }  # fmt: skip
    for name, value in (facts | elements).items():
        if value is not None:
            setattr(dataset, name, value)
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = syntax or ExplicitVRLittleEndian
    file = io.BytesIO()
    if preamble:
        dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
        dataset.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
        dataset.save_as(file, enforce_file_format=True)
    else:
        del dataset.file_meta
        dataset.save_as(file, implicit_vr=False, little_endian=True)
    return file.getvalue()


def reason_of(data, **limits):
    with pytest.raises(ImageError) as caught:
        read_image(data, **limits)
    assert SECRET not in str(caught.value)
    assert "4711" not in str(caught.value)
    return caught.value.reason, str(caught.value)


def test_window_is_the_standards_linear_function():
    """PS3.3 C.11.2.1.2.1, written out: centre 1000, width 501."""
    shown = read_image(dicom(WindowCenter="1000", WindowWidth="501"))
    expected = np.clip((RAMP - (1000 - 0.5)) / (501 - 1) + 0.5, 0, 1)
    np.testing.assert_array_equal(shown, np.rint(expected * 255))


def test_the_first_of_several_windows_counts():
    several = read_image(dicom(WindowCenter=["1000", "3000"], WindowWidth=["501", "100"]))
    np.testing.assert_array_equal(several, read_image(dicom(WindowCenter="1000", WindowWidth="501")))


def test_the_modality_comes_before_the_window():
    # 2 x - 1000 through centre 1000, width 501: x through centre 1000, width 250.5 but for the standard's half step.
    shown = read_image(dicom(RescaleSlope="2", RescaleIntercept="-1000", WindowCenter="1000", WindowWidth="501"))
    expected = np.clip((2.0 * RAMP - 1000 - 999.5) / 500 + 0.5, 0, 1)
    np.testing.assert_array_equal(shown, np.rint(expected * 255))


def test_no_window_stretches_between_percentiles():
    low, high = np.percentile(RAMP, [0.5, 99.5])
    expected = np.rint(np.clip((RAMP - low) / (high - low), 0, 1) * 255)
    np.testing.assert_array_equal(read_image(dicom()), expected)
    assert not read_image(dicom(np.full_like(RAMP, 7))).any()


@pytest.mark.parametrize("window", [{}, {"WindowCenter": "1500", "WindowWidth": "900"}])
def test_inversion_comes_last(window):
    """Windowing first: an inverted file shows exactly the complement, where inverting first would move the window."""
    plain = read_image(dicom(**window)).astype(int)
    for inverse in ({"PhotometricInterpretation": "MONOCHROME1"}, {"PresentationLUTShape": "INVERSE"}):
        assert np.abs(255 - plain - read_image(dicom(**window, **inverse))).max() <= 1


def test_a_pair_of_one_radiograph(shared_data):
    odd = shared_data / "odd" / "files"
    first, second = (load_image(odd, f"cxr_monochrome{n}_12bit.dcm").astype(int) for n in (1, 2))
    assert np.abs(first - second).max() <= 1
    inverse = load_image(odd, "cxr_presentation_inverse.dcm").astype(float)
    assert np.corrcoef(inverse.ravel(), second.ravel())[0, 1] < -0.99


def test_bits_stored_is_not_bits_allocated():
    shown = read_image(dicom(RAMP // 16, BitsStored=8, HighBit=7, WindowCenter="128", WindowWidth="256"))
    np.testing.assert_array_equal(shown, RAMP // 16)


def test_a_lookup_table_replaces_the_window():
    from pydicom.dataset import Dataset

    table = Dataset()
    table.LUTDescriptor = [4096, 0, 12]
    table.add_new("LUTData", "OW", (np.arange(4096) // 2048 * 4095).astype("<u2").tobytes())
    shown = read_image(dicom(VOILUTSequence=[table], WindowCenter="1000", WindowWidth="501"))
    np.testing.assert_array_equal(shown, np.where(RAMP >= 2048, 255, 0))


def test_colour_is_kept():
    colours = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    facts = {
        "Rows": 40, "Columns": 30, "SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0,
        "BitsAllocated": 8, "BitsStored": 8, "HighBit": 7,
    }  # fmt: skip
    np.testing.assert_array_equal(read_image(dicom(colours, **facts)), colours)


@pytest.mark.parametrize(
    ("elements", "limits", "reason"),
    [
        ({"PixelData": None}, {}, "dicom_incomplete"),
        ({"NumberOfFrames": 2}, {}, "multi_frame"),
        ({"SamplesPerPixel": 2}, {}, "dicom_unsupported"),
        ({"PhotometricInterpretation": "HSV"}, {}, "dicom_unsupported"),
        ({"PixelData": RAMP.tobytes()[:-200]}, {}, "truncated"),
        ({"WindowCenter": "1000", "WindowWidth": "0"}, {}, "corrupt_data"),
        ({"VOILUTSequence": [LUT_CUT_SHORT]}, {}, "corrupt_data"),
        ({}, {"min_side": 41}, "too_small"),
        ({}, {"max_pixels": 1599}, "too_large"),
    ],
)
def test_what_is_refused(elements, limits, reason):
    assert reason_of(dicom(**elements), **limits)[0] == reason


def test_without_transfer_syntax():
    reason, message = reason_of(dicom(preamble=False))
    assert reason == "dicom_incomplete"
    assert "TransferSyntaxUID" in message


def test_a_missing_plugin_is_named(shared_data):
    reason, message = reason_of((shared_data / "odd" / "files" / "JPGExtended.dcm").read_bytes())
    assert reason == "dicom_plugin_missing"
    assert "JPEG Extended" in message
    assert "pylibjpeg-libjpeg" in message


def test_without_pydicom_the_cure_is_named(monkeypatch):
    real_import = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.partition(".")[0] == "pydicom":
            raise ModuleNotFoundError(name)
        return real_import(name, *args, **kwargs)

    data = dicom()
    monkeypatch.setattr(builtins, "__import__", refuse)
    reason, message = reason_of(data)
    assert reason == "dicom_unsupported"
    assert "pip install crs_assets[dicom]" in message


def test_burned_in_annotation_is_read_from_the_header():
    assert has_burned_in_annotation(dicom(BurnedInAnnotation="YES"))
    assert not has_burned_in_annotation(dicom(BurnedInAnnotation="NO"))
    assert not has_burned_in_annotation(dicom())


def test_the_patient_reaches_no_log(caplog, capsys):
    with caplog.at_level(logging.DEBUG):
        read_image(dicom(WindowCenter="1000", WindowWidth="501"))
        reason_of(dicom(PixelData=RAMP.tobytes()[:-200]))
    out, err = capsys.readouterr()
    assert SECRET not in caplog.text + out + err
    assert "4711" not in caplog.text + out + err
