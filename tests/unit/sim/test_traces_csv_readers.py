"""Formats of one CSV row a request: Azure, BurstGPT, Vidur and Splitwise, and the plain CSV with named columns."""

import math
import os
from pathlib import Path

import pytest

from models.errors import InputError, TraceError
from sim.traces import NO_ID, open_trace
from sim.traces.bad_lines import BadLines
from sim.traces.ordering import LOOK_AHEAD_ROWS
from sim.traces.statistics import trace_statistics

SHARED = (Path(__file__).parents[3] / os.environ.get("KVTIER_SHARED", "../shared")).resolve()

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
BURST_3 = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
VIDUR = ",num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio"
NAMED = "arrived_at_s,prompt_tokens,output_tokens"


def write(tmp_path, *lines, end="\n"):
    path = tmp_path / "trace.csv"
    path.write_text(end.join(lines), newline="")
    return path


def read(path, format=None, **options):
    return list(open_trace(path, format, **options).records())


def lengths(records):
    return [(record.arrived_at_s, record.prompt_tokens, record.output_tokens) for record in records]


def problem_of(path, **options):
    with pytest.raises(TraceError) as caught:
        read(path, **options)
    text = str(caught.value)
    assert text.startswith(f"{path}")
    assert "\n" not in text
    return text.removeprefix(str(path))


def test_azure_2023_to_the_last_digit(tmp_path):
    path = write(
        tmp_path, AZURE, "2023-11-16 18:17:03.9799600,4808,10", "2023-11-16 18:17:04.0319601,3180,8", "", end="\r\n"
    )
    trace = open_trace(path)
    assert not trace.has_prefixes
    first, second = trace.records()
    assert (first.arrived_at_s, second.arrived_at_s) == (0.0, 0.0520001)
    assert (first.prompt_tokens, first.output_tokens, first.block_ids, first.session_id) == (4808, 10, [], NO_ID)


def test_azure_2024_with_offsets_and_over_midnight(tmp_path):
    path = write(
        tmp_path,
        AZURE,
        "2024-05-10 23:59:59.5+00:00,1,0",
        "2024-05-11 00:00:00.009930+00:00,2,0",
        "2024-05-11 02:00:01+02:00,3,0",
        "2024-05-11T00:00:02Z,4,0",
    )
    assert [record.arrived_at_s for record in read(path)] == [0.0, 0.50993, 1.5, 2.5]


def test_azure_rows_out_of_order_count_from_the_earliest(tmp_path):
    path = write(tmp_path, AZURE, "2023-11-16 00:00:02,2,1", "2023-11-16 00:00:01,1,1", "2023-11-16 00:00:03,3,1")
    assert lengths(read(path)) == [(0.0, 1, 1), (1.0, 2, 1), (2.0, 3, 1)]


def test_azure_rows_beyond_the_look_ahead_keep_the_origin(tmp_path):
    stamps = [f"2023-11-16 00:{second // 60 % 60:02}:{second % 60:02},1,1" for second in range(3600)] * 3
    rows = sorted(stamps)
    assert len(rows) > LOOK_AHEAD_ROWS
    assert [record.arrived_at_s for record in read(write(tmp_path, AZURE, *rows))] == [i // 3 for i in range(len(rows))]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("2023-11-16,1,1", ":3: TIMESTAMP is '2023-11-16'; must be a date and time such as"),
        ("2023-02-30 00:00:00,1,1", ":3: TIMESTAMP is '2023-02-30 00:00:00'"),
        ("0001-01-01 00:00:00+23:00,1,1", ":3: TIMESTAMP is '0001-01-01 00:00:00+23:00'"),
        ("2023-11-16 00:00:00,0,1", ":3: ContextTokens is '0'; must be at least 1"),
        ("2023-11-16 00:00:00,5", ":3: has 2 fields, but the header names 3 columns"),
        ("2023-11-16 00:00:00,5,5,5", ":3: has 4 fields, but the header names 3 columns"),
        ("2023-11-16 00:00:00,1.5,1", ":3: ContextTokens is '1.5'; must be a whole number of tokens"),
        ("2023-11-16 00:00:00,1,", ":3: GeneratedTokens is ''; must be a whole number"),
        ("2023-11-16 00:00:00,1,nan", ":3: GeneratedTokens is 'nan'"),
        ("2023-11-16 00:00:00,1,-1", ":3: GeneratedTokens is '-1'; must be at least 0"),
        ("2023-11-16 00:00:00,1e30,1", ":3: ContextTokens is '1e30'; must be at most 2147483647"),
        ('"2023-11-16 00:00:00,1,1', ":3: not a row of CSV (unexpected end of data)"),
    ],
)
def test_malformed_azure_rows(tmp_path, row, problem):
    path = write(tmp_path, AZURE, "2023-11-16 00:00:00,1,1", row)
    assert problem in problem_of(path)
    bad_lines = BadLines(skip=True)
    assert len(read(path, bad_lines=bad_lines)) == 1
    assert bad_lines.count == 1


def test_a_file_with_a_header_only(tmp_path):
    assert problem_of(write(tmp_path, AZURE)) == ": the file holds no requests"


@pytest.mark.parametrize(
    ("name", "counts", "means", "rate_per_s", "cv"),
    [
        ("code", (8819, 1469, 7436, 13, 251.46), (2047.85, 27.88), 2.567, 13.15),
        ("conv", (19366, 1020, 4142, 129, 601), (1154.70, 211.13), 5.530, 1.094),
    ],
)
def test_the_azure_traces_have_their_known_statistics(name, counts, means, rate_per_s, cv):
    path = SHARED / "traces" / "azure" / f"AzureLLMInferenceTrace_{name}.csv.gz"
    if not path.is_file():
        pytest.skip("no Azure traces: set KVTIER_SHARED")
    figures = trace_statistics(open_trace(path))
    prompts, outputs = figures["prompt_tokens"], figures["output_tokens"]
    found = (figures["requests"], prompts["p50"], prompts["p99"], outputs["p50"], outputs["p99"])
    assert found == pytest.approx(counts)
    assert (prompts["mean"], outputs["mean"]) == pytest.approx(means, abs=0.01)
    assert figures["requests"] / figures["duration_s"] == pytest.approx(rate_per_s, abs=0.001)
    assert figures["arrivals"]["inter_arrival_cv"] == pytest.approx(cv, abs=0.01)


def test_burstgpt_keeps_failed_requests_and_counts_those_without_a_prompt(tmp_path):
    path = write(
        tmp_path,
        BURST,
        "5,ChatGPT,472,18,490,Conversation log",
        "45,ChatGPT,1087,0,1087,Conversation log",
        "118,GPT-4,0,0,0,Conversation log",
        "120,GPT-4,0,0,0,API log",
    )
    bad_lines = BadLines()
    for _ in range(2):  # a second reading counts nothing twice
        assert lengths(read(path, bad_lines=bad_lines)) == [(5.0, 472, 18), (45.0, 1087, 0)]
    assert bad_lines.summary() == "2 failed requests without a prompt left out"
    assert "Request tokens is 0, but Response tokens is 3" in problem_of(
        write(tmp_path, BURST, "5,GPT-4,0,3,3,API log")
    )


def test_burstgpt_sessions_and_pauses(tmp_path):
    path = write(
        tmp_path,
        BURST_3,
        "19440110.0,1722ac82-0a46,43,GPT-4,906,446,1352,Conversation log",
        "19440150.5,d5983bf9-4b48,2,ChatGPT,36,29,65,Conversation log",
        "19440160.0,,1,ChatGPT,10,5,15,API log",
        "19440163.0,1722ac82-0a46,,GPT-4,1400,20,1420,Conversation log",
        "19440170.0,1722ac82-0a46,5,GPT-4,1500,20,1520,Conversation log",
        "19440171.0,1722ac82-0a46,5,GPT-4,1600,20,1620,Conversation log",
    )
    records = read(path)
    assert [record.session_id for record in records] == [0, 1, NO_ID, 0, 0, 0]
    # 10 s after the first answer; then its own answer's length is unknown; the last one came before the answer ended.
    assert [record.think_s for record in records] == pytest.approx(
        [math.nan, math.nan, math.nan, 10.0, math.nan, 0.0], nan_ok=True
    )


def test_vidur_with_times(tmp_path):
    path = write(tmp_path, "arrived_at,num_prefill_tokens,num_decode_tokens", "0.25,100.0,7", "0.1,200,0")
    trace = open_trace(path)
    assert trace.notes == ()
    assert lengths(trace.records()) == [(0.1, 200, 0), (0.25, 100, 7)]
    with pytest.raises(InputError, match="has arrival times, so rate_per_s is of no use"):
        open_trace(path, rate_per_s=3.0)


def test_splitwise_columns(tmp_path):
    header = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size"
    assert lengths(read(write(tmp_path, header, "0,2,0,1.5,1,374,44"))) == [(1.5, 374, 44)]


def test_vidur_without_times_says_so_or_draws_them(tmp_path):
    path = write(tmp_path, VIDUR, *(f"{index},{100 + index},5,{105 + index},20" for index in range(2000)))
    trace = open_trace(path)
    assert trace.notes[0].startswith("the file has no arrival times")
    assert [record.prompt_tokens for record in trace.records()] == list(range(100, 2100))
    assert {record.arrived_at_s for record in trace.records()} == {0.0}
    drawn = open_trace(path, rate_per_s=4.0, seed=1)
    assert drawn.notes == ()
    first = list(drawn.records())
    assert [record.prompt_tokens for record in first] == list(range(100, 2100))
    assert lengths(first) == lengths(drawn.records())
    assert lengths(first) != lengths(open_trace(path, rate_per_s=4.0, seed=2).records())
    figures = trace_statistics(drawn)
    assert figures["duration_s"] == pytest.approx(500, rel=0.1)  # five standard deviations
    assert figures["arrivals"]["inter_arrival_cv"] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("options", [{"rate_per_s": 0}, {"rate_per_s": math.inf}, {"rate_per_s": "4"}, {"seed": -1}])
def test_vidur_options_that_describe_no_process(tmp_path, options):
    with pytest.raises(InputError, match=next(iter(options))):
        open_trace(write(tmp_path, VIDUR, "0,1,1,2,1"), **options)


def test_named_columns_in_any_order_and_other_columns(tmp_path):
    header = 'note,block_ids,"Output_Tokens",think_s,prompt_tokens,session_id,ARRIVED_AT_S'
    path = write(
        tmp_path,
        header,
        '"a, ""b""",7 8;9,3,,40,alice,1.5',
        ",7;8,0,2.5,32,alice,2",
        ",1; 2 ;3,1,,48,,2",
    )
    trace = open_trace(path)
    assert (trace.has_prefixes, trace.block_tokens) == (True, 16)
    first, second, third = trace.records()
    assert (first.block_ids, first.partial_block_id, first.session_id) == ([7, 8], 9, 0)
    assert math.isnan(first.think_s)
    assert (second.block_ids, second.partial_block_id, second.session_id, second.think_s) == ([7, 8], NO_ID, 0, 2.5)
    assert (third.block_ids, third.session_id) == ([1, 2, 3], NO_ID)


@pytest.mark.parametrize("column", ["arrival_s", "arrival_time_s", "timestamp_s", "timestamp_ms", "arrival_ms"])
def test_named_arrivals_say_their_unit(tmp_path, column):
    path = write(tmp_path, f"{column},input_tokens,completion_tokens", "1500,10,1")
    trace = open_trace(path)
    assert not trace.has_prefixes
    assert lengths(trace.records()) == [(1.5 if column.endswith("_ms") else 1500.0, 10, 1)]


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("prompt_tokens,output_tokens", ": the header has no column of arrivals; a trace has one of arrived_at_s"),
        ("arrival_s,timestamp_ms,prompt_tokens,output_tokens", "has the columns arrival_s and timestamp_ms"),
        (f"{NAMED},input_tokens", ":1: the header names both prompt_tokens and input_tokens"),
        (f"{NAMED},prompt_tokens", ":1: the header names prompt_tokens twice"),
    ],
)
def test_headers_that_leave_a_choice(tmp_path, header, problem):
    assert problem in problem_of(write(tmp_path, header, "1,1,1,1"))


def test_a_format_that_is_named_needs_its_columns(tmp_path):
    path = write(tmp_path, NAMED, "1,1,1")
    assert "column timestamp is missing; the header is 'arrived_at_s" in problem_of(path, format="azure")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("-1,32,1,,,1 2", "arrived_at_s is '-1'; must be a number of seconds from 0 to 8589934592"),
        ("1e11,32,1,,,1 2", "arrived_at_s is '1e11'"),
        ("inf,32,1,,,1 2", "arrived_at_s is 'inf'"),
        ("1,32,1,,-2,1 2", "think_s is '-2'"),
        ("1,32,1,,,1 x", "block_ids holds 'x'; must be whole numbers from 0 to 2**62 - 1"),
        (f"1,32,1,,,1 {2**62}", f"block_ids holds '{2**62}'"),
        ("1,32,1,,,1 1", "block_ids repeats an id"),
        ("1,32,1,,,1", "block_ids has 1 ids, but 32 prompt tokens make 2 full blocks of 16 tokens"),
        ("1,40,1,,,1", "40 prompt tokens make 2 full blocks and a partial one of 16 tokens; is another block_tokens"),
        ("1,32,1,,,", "block_ids has 0 ids"),
    ],
)
def test_malformed_named_rows(tmp_path, row, problem):
    path = write(tmp_path, f"{NAMED},session_id,think_s,block_ids", "1,32,1,,,1 2", row)
    found = problem_of(path)
    assert found.startswith(":3: ")
    assert problem in found


def test_names_in_quotes_do_not_make_it_json(tmp_path):
    path = write(tmp_path, '"timestamp_ms","input_tokens","output_tokens"', "1500,10,1")
    assert lengths(read(path)) == [(1.5, 10, 1)]


def test_named_block_size_is_an_option(tmp_path):
    path = write(tmp_path, f"{NAMED},block_ids", "1,1100,1,3 4 5")
    (record,) = read(path, block_tokens=512)
    assert (record.block_ids, record.partial_block_id) == ([3, 4], 5)
    with pytest.raises(InputError, match="block_tokens is 0; must be a whole number of at least 1"):
        open_trace(path, block_tokens=0)


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(f"{NAMED},session_id\n1,1,1,ann\n2,1,1,\xe9\n".encode("latin-1"))
    assert ":3: not UTF-8 text (byte 7 of the line is 0xe9)" in problem_of(path)


def test_equal_rows_are_kept(tmp_path):
    assert len(read(write(tmp_path, NAMED, "1,1,1", "1,1,1"))) == 2
