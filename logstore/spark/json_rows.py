"""Rows of any schema as payloads: one JSON object each.

Owns nothing; Spark does the work.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import struct, to_json

from logstore.spark.task_rows import PAYLOAD


def json_payloads(frame: DataFrame, *columns: str) -> DataFrame:
    """One column `payload`: a JSON object of the columns given, of all if none is.

    Nulls are kept as null, binary columns are base64, times are ISO 8601. A batch frame or a
    stream's.
    """
    wanted = struct(*(columns or frame.columns))
    return frame.select(to_json(wanted, {"ignoreNullFields": "false"}).alias(PAYLOAD))
