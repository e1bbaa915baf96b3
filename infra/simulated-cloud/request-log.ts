/** A request that the cloud received. */
export interface LoggedRequest {
  /** Time when the cloud recorded the request, ISO 8601. */
  at: string;
  operation: string;
  method: string;
  host: string;
  /** Path with the query. */
  path: string;
  vault?: string;
  subscription?: string;
  /** ID of a resource other than a vault. */
  resource?: string;
  /** Whether the request had an Authorization header. */
  token: boolean;
  userAgent?: string;
  /** Status of the response. 0 if the connection ended without a response. */
  status: number;
  /** ID of the fault that changed the response. */
  fault?: string;
}

/** The log stores at least this number of latest requests. The counts include all requests. */
const MAX_REQUESTS = 20_000;

/** Records the requests to the cloud: a count per operation, and the latest requests. Tests read it. */
export class RequestLog {
  readonly #counts = new Map<string, number>();
  #requests: LoggedRequest[] = [];

  add(request: LoggedRequest): void {
    this.#counts.set(request.operation, (this.#counts.get(request.operation) ?? 0) + 1);
    this.#requests.push(request);
    if (this.#requests.length >= 2 * MAX_REQUESTS) this.#requests = this.#requests.slice(-MAX_REQUESTS);
  }

  /** Returns the counts by operation in alphabetical order, with `total`. */
  counts(): Record<string, number> {
    const entries = [...this.#counts].sort(([a], [b]) => (a < b ? -1 : 1));
    return { ...Object.fromEntries(entries), total: entries.reduce((sum, [, count]) => sum + count, 0) };
  }

  /** Returns the latest requests, oldest first. */
  requests(
    filter: { operation?: string; host?: string; vault?: string; resource?: string; limit?: number } = {},
  ): LoggedRequest[] {
    const { operation, host, vault, resource, limit = MAX_REQUESTS } = filter;
    const matching = this.#requests.filter(
      (request) =>
        (operation === undefined || request.operation === operation) &&
        (host === undefined || request.host === host) &&
        (vault === undefined || request.vault === vault) &&
        (resource === undefined || request.resource?.toLowerCase() === resource.toLowerCase()),
    );
    return limit <= 0 ? [] : matching.slice(-limit);
  }

  reset(): void {
    this.#counts.clear();
    this.#requests = [];
  }
}
