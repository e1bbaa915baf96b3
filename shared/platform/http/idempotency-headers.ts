/** Request header with the key of a request that must take effect only once. idempotency.ts explains it. */
export const IDEMPOTENCY_HEADER = "Idempotency-Key";
/** Response header of a repeat: the first request had the same key. */
export const REPLAYED_HEADER = "Idempotency-Replayed";
