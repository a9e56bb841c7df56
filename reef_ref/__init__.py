"""The reference implementation of weight publication, and what runs beside and inside SGLang."""
