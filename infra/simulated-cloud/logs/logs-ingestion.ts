import { gunzipSync } from "node:zlib";
import {
  type ErrorResponses,
  type IncomingRequest,
  type Operation,
  retryAfter,
  type Service,
  type ServiceResponse,
} from "../http.ts";
import { type Tokens, tokenProblem } from "../tokens.ts";

/** Host of the data collection endpoint. */
export const INGESTION_DOMAIN = "ingest.localhost";
export const INGESTION_HOST = `dce-acme.${INGESTION_DOMAIN}`;
/** Audience of tokens: https://learn.microsoft.com/azure/azure-monitor/logs/logs-ingestion-api-overview */
export const INGESTION_AUDIENCE = "https://monitor.azure.com";

/** Immutable ID of the only data collection rule, and its only stream. */
const RULE = "dcr-00000000000000000000000000000001";
const STREAM = "Custom-CredentialLifecycle_CL";
/** The columns of the stream: `infra/azure/modules/siem.bicep` declares the same. */
const COLUMNS = [
  "TimeGenerated",
  "OccurredAt",
  "EventId",
  "EventType",
  "Sequence",
  "StreamId",
  "Actor",
  "Action",
  "Outcome",
  "Target",
  "Data",
  "DataPart2",
  "DataPart3",
];
/** https://learn.microsoft.com/azure/azure-monitor/service-limits#logs-ingestion-api */
const MAX_BYTES = 1024 * 1024;
/** Maximum size of a text in bytes. Azure truncates longer texts. */
const MAX_TEXT_BYTES = 64 * 1024;

/** A record of the table, by column. */
export type IngestedRecord = Record<string, string>;

/**
 * Simulates the Logs Ingestion API: `POST /dataCollectionRules/{id}/streams/{stream}`. Unlike Azure, which drops unknown columns
 * and truncates long texts, it rejects records with either.
 */
export class LogsIngestion {
  readonly #tokens: Tokens;
  /** The records of the table, in the order in which they arrived. */
  readonly records: IngestedRecord[] = [];

  constructor(tokens: Tokens) {
    this.#tokens = tokens;
  }

  get service(): Service {
    return (request) => {
      const [collection, rule = "", streams, stream = "", ...more] = request.segments;
      const isUpload = collection === "dataCollectionRules" && streams === "streams" && more.length === 0;
      if (request.method !== "POST" || !isUpload) return undefined;
      const problem = tokenProblem(this.#tokens, request.headers.authorization, INGESTION_AUDIENCE);
      return {
        name: "logsingestion.upload",
        resource: rule,
        item: stream,
        action: "Microsoft.Insights/Telemetry/Write",
        anonymous: problem !== undefined,
        errorResponses,
        answer: () =>
          problem === undefined
            ? this.#upload(request, rule, stream)
            : failure(401, "InvalidToken", "The authentication token is missing or not valid."),
      } satisfies Operation;
    };
  }

  #upload(request: IncomingRequest, rule: string, stream: string): ServiceResponse {
    if (request.query.get("api-version") !== "2023-01-01")
      return failure(400, "InvalidApiVersion", "The API version is missing or unknown.");
    if (rule !== RULE) return failure(404, "NotFound", `Data collection rule with immutable Id '${rule}' not found.`);
    if (stream !== STREAM) return failure(400, "InvalidStream", `Stream '${stream}' is not part of the rule.`);
    if (request.headers["content-type"]?.split(";")[0] !== "application/json")
      return failure(400, "UnsupportedMediaType", "The content type must be application/json.");
    const isGzip = request.headers["content-encoding"] === "gzip";
    const body = isGzip ? gunzipSync(request.body) : request.body;
    if (body.length > MAX_BYTES) return failure(413, "ContentLengthLimitExceeded", "The limit is 1 MB per call.");
    const records = recordsOf(body);
    if (typeof records === "string") return failure(400, "InvalidRequest", records);
    this.records.push(...records);
    return { status: 204 };
  }
}

/** Returns the records of a body, or why the body is not valid. */
function recordsOf(body: Buffer): IngestedRecord[] | string {
  let records: unknown;
  try {
    records = JSON.parse(body.toString("utf8"));
  } catch {
    return "The body is not JSON.";
  }
  if (!Array.isArray(records) || records.length === 0) return "The body must be an array of records.";
  for (const record of records as unknown[]) {
    if (typeof record !== "object" || record === null) return "A record must be an object.";
    for (const [column, value] of Object.entries(record)) {
      if (!COLUMNS.includes(column)) return `The stream has no column ${column}.`;
      if (typeof value !== "string") return `The column ${column} must be text.`;
      if (Buffer.byteLength(value) > MAX_TEXT_BYTES) return `The value of ${column} is longer than 64 KB.`;
    }
    if (Number.isNaN(Date.parse((record as IngestedRecord).TimeGenerated ?? "")))
      return "TimeGenerated must be a time.";
  }
  return records as IngestedRecord[];
}

const failure = (status: number, code: string, message: string): ServiceResponse => ({
  status,
  body: { error: { code, message } },
});

const errorResponses: ErrorResponses = {
  throttled: (seconds) => ({ ...failure(429, "TooManyRequests", "Too many requests."), headers: retryAfter(seconds) }),
  denied: () => failure(403, "OperationFailed", "The authentication token provided does not have access."),
  firewalled: () => failure(403, "AccessDenied", "The data collection endpoint takes no data from public networks."),
  failed: (status) => failure(status, "InternalServerError", "The records were not ingested."),
};
