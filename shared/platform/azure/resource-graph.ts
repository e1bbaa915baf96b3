import * as z from "zod";
import type { Arm } from "./arm.ts";
import { malformedAnswer } from "./failure.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/**
 * Azure Resource Graph returns many resources in few calls. It is stale by seconds to minutes, and has no rows for resources
 * that the identity can't read: for a denied subscription the answer is empty.
 */
export interface ResourceGraph {
  /**
   * Returns the unchecked rows of a query, page by page. The result is complete only if the iteration ends without an error.
   *
   * @param query - Must project `id`. Without it there are no further pages, and rows are silently missing.
   * @param subscriptions - At most 300:
   * https://learn.microsoft.com/azure/governance/resource-graph/concepts/guidance-for-throttled-requests
   * @throws {CloudFailure} timedOut once the signal is aborted
   */
  query(query: string, subscriptions: readonly string[], signal?: AbortSignal): AsyncGenerator<unknown[]>;
}

/** Returns a text as a literal of the query language. */
export const quoted = (text: string): string => `'${text.replace(/[\\']/g, "\\$&")}'`;

const API_VERSION = "2022-10-01";

/** Rows per page, the maximum: https://learn.microsoft.com/azure/governance/resource-graph/concepts/work-with-data */
const PER_PAGE = 1000;

/** Most rows of one query. A longer result would fill the memory. */
const MOST_ROWS = 4_000_000;

/** `resultTruncated` is a text. */
const answer = z.object({
  data: z.array(z.unknown()),
  resultTruncated: z.union([z.string(), z.boolean()]).nullish(),
  $skipToken: z.string().nullish(),
});

export function createResourceGraph(arm: Arm): ResourceGraph {
  const target = {
    operation: "query resources",
    resource: "Azure Resource Graph",
    grant: DEPENDENCY_READER,
  };

  return {
    async *query(query, subscriptions, signal) {
      let skipToken: string | undefined;
      const seen = new Set<string>();
      do {
        const options = { $top: PER_PAGE, resultFormat: "objectArray", ...(skipToken && { $skipToken: skipToken }) };
        const found = await arm.call(
          {
            // The query only reads, so it may be retried.
            method: "POST",
            path: "/providers/Microsoft.ResourceGraph/resources",
            apiVersion: API_VERSION,
            body: { subscriptions, query, options },
            target,
            signal,
          },
          answer,
        );
        yield found.data;
        skipToken = found.$skipToken || undefined;
        if (skipToken === undefined && String(found.resultTruncated) === "true") {
          throw malformedAnswer(target, "rows are missing from the answer");
        }
        if (skipToken !== undefined && (seen.has(skipToken) || seen.size * PER_PAGE >= MOST_ROWS)) {
          throw malformedAnswer(target, "the pages of the response do not end");
        }
        seen.add(skipToken ?? "");
      } while (skipToken !== undefined);
    },
  };
}
