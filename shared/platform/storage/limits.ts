import { DAY_SECONDS } from "../time.ts";

// Limits of Azure Table and Queue Storage. Azurite accepts some violations, so the limits are checked before a request is sent.

/**
 * Characters of a partition key or a row key.
 * https://learn.microsoft.com/azure/storage/tables/scalability-targets
 */
export const MAX_KEY_CHARACTERS = 1024;

/** Properties of one entity, not counting PartitionKey, RowKey and Timestamp.
 * https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model */
export const MAX_PROPERTIES = 252;

/** Bytes of one entity, keys and property names included. `checkLimits` counts as the service does.
 * https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model */
export const MAX_ENTITY_BYTES = 1024 * 1024;

/**
 * UTF-16 units of one text property. The documented limit is 64 KiB, "about 32 K characters or less", so this is slightly less.
 * https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model#property-types
 */
export const MAX_TEXT_UNITS = 32_000;

/** Bytes of one binary property.
 * https://learn.microsoft.com/rest/api/storageservices/understanding-the-table-service-data-model#property-types */
export const MAX_BINARY_BYTES = 64 * 1024;

/**
 * Operations in one transaction: in one partition, each on a different row.
 * https://learn.microsoft.com/rest/api/storageservices/performing-entity-group-transactions
 */
export const MAX_TRANSACTION_OPERATIONS = 100;

/**
 * Bytes of the body of one transaction.
 * https://learn.microsoft.com/rest/api/storageservices/performing-entity-group-transactions
 */
export const MAX_TRANSACTION_BYTES = 4 * 1024 * 1024;

/**
 * Rows in one page of a query. The service rejects a larger `$top`.
 * https://learn.microsoft.com/rest/api/storageservices/query-timeout-and-pagination
 */
export const MAX_PAGE_SIZE = 1000;

/**
 * Bytes of a queue message before base64 encoding, which makes them 64 KiB.
 * https://learn.microsoft.com/azure/storage/queues/storage-queues-introduction
 */
export const MAX_MESSAGE_BYTES = 48 * 1024;

/**
 * Maximum delay of a message in seconds (seven days).
 * https://learn.microsoft.com/rest/api/storageservices/put-message
 */
export const MAX_MESSAGE_DELAY_SECONDS = 7 * DAY_SECONDS;

/** Maximum attempts of one request if the service is busy or unreachable. */
export const MAX_ATTEMPTS = 5;

/** Milliseconds before the second attempt. Doubles with each attempt, with jitter. */
export const FIRST_RETRY_MS = 500;

/** Maximum milliseconds between two attempts. */
export const MAX_RETRY_MS = 10_000;

/**
 * Milliseconds to wait for an answer. The service itself gives up after 30 seconds.
 * https://learn.microsoft.com/rest/api/storageservices/setting-timeouts-for-table-service-operations
 */
export const ANSWER_TIMEOUT_MS = 35_000;

/**
 * Maximum total milliseconds to wait for a table or queue that is being deleted, which takes about 40 seconds.
 * https://learn.microsoft.com/rest/api/storageservices/delete-table
 */
export const MAX_DELETION_WAIT_MS = 60_000;
