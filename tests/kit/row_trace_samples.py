"""A small sound file of each trace format with one row a request, beside Mooncake's."""

ROW_SAMPLES = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600+00:00,3180,0\n2023-11-16 18:17:04,110,27\n",
    "burstgpt": "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5.0,1722ac82-0a46,43,GPT-4,906,446,1352,Conversation log\n6.0,,1,ChatGPT,7,0,7,API log\n",
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens\n0.25,100,7\n0.3,12,1\n0.1,3,0\n",
    "named-csv": "arrived_at_s,prompt_tokens,output_tokens,session_id,think_s,block_ids\n"
    '1.5,40,3,"a, b",,1 2;3\n2,32,0,,0.5,1;2\n',
    "bailian": '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 6.1, "input_length": 33, "output_length": 2, '
    '"type": "text", "turn": 1, "hash_ids": [8, 9, 6]}\n'
    '{"chat_id": 2, "parent_chat_id": 1, "timestamp": 62, "input_length": 16, "output_length": 0, "hash_ids": [8]}\n',
    "llmservingsim": '{"input_toks": 4, "output_toks": 5, "arrival_time_ns": 100, "input_tok_ids": [1, 2, 3, 4]}\n'
    '{"session_id": "a", "arrival_time_ns": 5, "sub_requests": [{"input_toks": 1, "output_toks": 1, '
    '"tool_duration_ns": 7, "input_tok_ids": [1]}, {"input_toks": 1, "output_toks": 1, "input_tok_ids": [2]}]}\n',
}
"""By the name of the format."""
