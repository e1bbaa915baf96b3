import type { Endpoint } from "../../shared/platform/http/endpoint.ts";
import type { RequestInput } from "../../shared/platform/http/in-process.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import { queryNames, requestSchema } from "./input-schema.ts";

/*
 * The endpoints that programs can propose: those with a dry run and without a write-only member. A dry run is the member `dryRun`
 * of the body, or the parameter `preview` of the query.
 */

/** How the dry run of an endpoint is requested. */
type DryRun = "body" | "query";

/** Returns how the dry run of an endpoint is requested. Undefined for an endpoint that can't be proposed. */
export function dryRunOf<Services>(endpoint: Endpoint<Services>): DryRun | undefined {
  const { method, access, interactive, credential, body } = endpoint;
  if (method === "GET" || access === "open" || interactive || credential) return undefined;
  const schema = requestSchema(body);
  if (JSON.stringify(schema).includes('"writeOnly":true')) return undefined;
  if (schema.properties && "dryRun" in schema.properties) return "body";
  return queryNames(endpoint as unknown as Endpoint<never>).includes("preview") ? "query" : undefined;
}

const DRY_RUN_NAMES = ["dryRun", "dry_run", "preview"];

/**
 * Returns the input of the dry run of a proposed request.
 *
 * @throws {Problem} invalidRequest for a request that is itself a dry run: a person would approve a change without an effect.
 */
export function dryRunInput(kind: DryRun, { params, query, body }: RequestInput): RequestInput {
  const given = [...Object.keys(query), ...(typeof body === "object" && body !== null ? Object.keys(body) : [])];
  const name = given.find((one) => DRY_RUN_NAMES.includes(one));
  if (name !== undefined)
    throw new Problem("invalidRequest", `Leave ${name} out: the service makes the dry run of each proposal itself.`);
  if (kind === "query") return { params, query: { ...query, preview: "true" }, body };
  return { params, query, body: { ...(body as object | undefined), dryRun: true } };
}
