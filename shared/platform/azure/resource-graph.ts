import * as z from "zod";
import { escapeToSingleLine } from "../http/single-line.ts";
import type { Arm } from "./arm.ts";
import { malformedAnswer } from "./failure.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/**
 * Queries Azure Resource Graph, an index of resources that returns many resources in few calls. Its data can be minutes old. It
 * has no rows for resources that the identity can't read: for a denied subscription the result is empty.
 */
export interface ResourceGraph {
  /**
   * Returns the rows of a query, page by page, without checking them. The result is complete only if the iteration ends
   * normally.
   *
   * @param query - Must project `id`. Without it there are no further pages, and rows are silently missing.
   * @param subscriptions - At most `SUBSCRIPTIONS_IN_QUERY`. Undefined for all that the identity can read.
   * @throws {CloudFailure} timedOut once the signal is aborted
   */
  query(query: string, subscriptions: readonly string[] | undefined, signal?: AbortSignal): AsyncGenerator<unknown[]>;
}

/**
 * Returns a text as a literal of the query language, which must not contain line breaks:
 * https://learn.microsoft.com/kusto/query/scalar-data-types/string
 */
export const toQueryLiteral = (text: string): string => `'${escapeToSingleLine(text.replace(/[\\']/g, "\\$&"))}'`;

const API_VERSION = "2022-10-01";

/** https://learn.microsoft.com/azure/governance/resource-graph/concepts/guidance-for-throttled-requests */
export const SUBSCRIPTIONS_IN_QUERY = 300;

/** Rows per page, the maximum: https://learn.microsoft.com/azure/governance/resource-graph/concepts/work-with-data */
const ROWS_PER_PAGE = 1000;

/** Maximum number of rows of one query. A longer result would not fit into memory. */
const MAX_ROWS = 4_000_000;

/** Response of a query. `resultTruncated` is documented as a text, `"true"` or `"false"`. */
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
      const usedSkipTokens = new Set<string>();
      do {
        const options = {
          $top: ROWS_PER_PAGE,
          resultFormat: "objectArray",
          ...(skipToken && { $skipToken: skipToken }),
        };
        const response = await arm.call(
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
        yield response.data;
        skipToken = response.$skipToken || undefined;
        if (skipToken === undefined && String(response.resultTruncated) === "true") {
          throw malformedAnswer(target, "rows are missing from the response");
        }
        if (
          skipToken !== undefined &&
          (usedSkipTokens.has(skipToken) || usedSkipTokens.size * ROWS_PER_PAGE >= MAX_ROWS)
        ) {
          throw malformedAnswer(target, "the pages of the response do not end");
        }
        usedSkipTokens.add(skipToken ?? "");
      } while (skipToken !== undefined);
    },
  };
}
