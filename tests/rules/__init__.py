"""The rules of docs/cancellation-rules.md and the tests that prove them."""
