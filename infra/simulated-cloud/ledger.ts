/** One request that reached the cloud. */
export interface LoggedRequest {
  at: string;
  operation: string;
  method: string;
  host: string;
  path: string;
  vault?: string;
  subscription?: string;
  /** The id of a resource of the resource manager other than a vault. */
  resource?: string;
  /** Whether it carried an Authorization header. */
  token: boolean;
  userAgent?: string;
  /** 0 when the connection ended without an answer. */
  status: number;
  /** The fault that shaped the answer. */
  fault?: string;
}

/** How many of the latest requests are kept; counts are of all. */
const KEPT = 20_000;

/** What was asked of the cloud: a count per operation, and the latest requests. */
export class Ledger {
  readonly #counts = new Map<string, number>();
  #requests: LoggedRequest[] = [];

  add(request: LoggedRequest): void {
    this.#counts.set(request.operation, (this.#counts.get(request.operation) ?? 0) + 1);
    this.#requests.push(request);
    if (this.#requests.length >= 2 * KEPT) this.#requests = this.#requests.slice(-KEPT);
  }

  /** By operation, in alphabetical order, with `total`. */
  counts(): Record<string, number> {
    const entries = [...this.#counts].sort(([a], [b]) => (a < b ? -1 : 1));
    return { ...Object.fromEntries(entries), total: entries.reduce((sum, [, count]) => sum + count, 0) };
  }

  /** The latest requests, oldest first. */
  requests(
    filter: { operation?: string; host?: string; vault?: string; resource?: string; limit?: number } = {},
  ): LoggedRequest[] {
    const { operation, host, vault, resource, limit = KEPT } = filter;
    const found = this.#requests.filter(
      (request) =>
        (operation === undefined || request.operation === operation) &&
        (host === undefined || request.host === host) &&
        (vault === undefined || request.vault === vault) &&
        (resource === undefined || request.resource?.toLowerCase() === resource.toLowerCase()),
    );
    return limit <= 0 ? [] : found.slice(-limit);
  }

  reset(): void {
    this.#counts.clear();
    this.#requests = [];
  }
}
