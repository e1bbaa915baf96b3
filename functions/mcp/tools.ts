import type { Endpoint } from "../../shared/platform/http/endpoint.ts";
import { mayCall, type Tier } from "../../shared/platform/http/endpoint.ts";
import {
  callInProcess,
  type InProcessCaller,
  pathOf,
  type RequestInput,
} from "../../shared/platform/http/in-process.ts";
import { Problem } from "../../shared/platform/http/problem.ts";
import type { Services } from "../services.ts";
import { answerText, pageSize, shortPage } from "./answer.ts";
import { dryRunInput, dryRunOf } from "./changes.ts";
import { ENDPOINT_TOOLS } from "./endpoint-tools.ts";
import { argumentsSchema, type ObjectSchema, queryNames, requestSchema } from "./input-schema.ts";

/*
 * The tools of the MCP server. They call endpoints of the API inside of the process as the caller, so that a tool returns and
 * allows exactly what the API does for the same token.
 */

/** The endpoints of the API. */
type Endpoints = readonly Endpoint<Services>[];
export type ToolCaller = InProcessCaller<Services>;

/** Result of a tool call, with the endpoint that the tool called, if any, for the audit log. */
export interface ToolAnswer {
  text: string;
  endpoint?: string;
}

export interface Tool {
  name: string;
  title: string;
  description: string;
  inputSchema: ObjectSchema;
  /** True if the tool changes nothing at all. */
  readOnly: boolean;
  /** @throws {Problem} for a call that the caller can correct */
  call(given: Record<string, unknown>, caller: ToolCaller): Promise<ToolAnswer>;
}

/** Maximum characters of the body of a proposal, so that a person can read it. */
const MAX_BODY_CHARACTERS = 10_000;
/** Maximum characters of the answer of its dry run. It is never shortened, because a person approves what it shows. */
const MAX_DRY_RUN_CHARACTERS = 60_000;
const MAX_REASON_CHARACTERS = 1000;

const text = (description: string) => ({ type: "string", description });
const values = (description: string) => ({ type: "object", additionalProperties: { type: "string" }, description });
const objectSchema = (properties: Record<string, object>, required: string[] = []): ObjectSchema => ({
  type: "object",
  properties,
  required,
  additionalProperties: false,
});

/** Returns all tools, in the order in which assistants see them. */
export function createTools(endpoints: Endpoints): Tool[] {
  return [...endpointTools(endpoints), ...readingTools(endpoints), ...changingTools(endpoints)];
}

function endpointTools(endpoints: Endpoints): Tool[] {
  return ENDPOINT_TOOLS.map(({ endpoint: wanted, parameters, required, fixed = {}, ...described }) => {
    const endpoint = endpoints.find(({ name }) => name === wanted)!;
    const inputSchema = argumentsSchema(plain(endpoint), parameters, required);
    return {
      ...described,
      inputSchema,
      readOnly: true,
      call: async (given, caller) => {
        requireArguments(given, inputSchema);
        const ofPath = Object.keys(endpoint.params?.shape ?? {});
        const parts = Object.entries(given).map(([name, value]) => [name, textOf(value)] as const);
        const params = Object.fromEntries(parts.filter(([name]) => ofPath.includes(name)));
        const query = Object.fromEntries(parts.filter(([name]) => !ofPath.includes(name)));
        return await readEndpoint(endpoint, { params, query: { ...query, ...fixed } }, caller);
      },
    };
  });
}

/** The tools that list and call further reading endpoints. */
function readingTools(endpoints: Endpoints): Tool[] {
  const readable = endpoints.filter(isReadable);
  return [
    {
      name: "list_reads",
      title: "List further reads",
      description:
        "Lists the reading endpoints of the API that your role can call with the tool `read`. Use it if no other tool answers the question.",
      inputSchema: objectSchema({ search: text("Part of a name, path or summary.") }),
      readOnly: true,
      call: async (given, caller) => {
        const search = textOf(given.search ?? "").toLowerCase();
        const items = (await callable(readable, caller))
          .map((endpoint) => ({
            name: endpoint.name,
            path: `/${endpoint.route}`,
            summary: endpoint.summary,
            query: queryNames(plain(endpoint)).filter((name) => name !== "format"),
          }))
          .filter(({ name, path, summary }) => `${name} ${path} ${summary}`.toLowerCase().includes(search));
        return { text: JSON.stringify({ items }) };
      },
    },
    {
      name: "read",
      title: "Read",
      description: "Calls a reading endpoint of the API by its name from `list_reads`. Exports are not available.",
      inputSchema: objectSchema(
        {
          name: text("Name of the endpoint, from list_reads."),
          path_parameters: values("Values of the parameters in braces in the path."),
          query: values("Query parameters. Lists return up to 50 items; use cursor to continue."),
        },
        ["name"],
      ),
      readOnly: true,
      call: async (given, caller) => {
        const endpoint = findEndpoint(readable, given.name, "list_reads");
        const query = textsOf(given.query, "query");
        if ("format" in query) throw invalidArgument("query.format", "is not available: tools return JSON");
        return await readEndpoint(
          endpoint,
          { params: textsOf(given.path_parameters, "path_parameters"), query },
          caller,
        );
      },
    },
  ];
}

/** The tools for proposals of changes. */
function changingTools(endpoints: Endpoints): Tool[] {
  const proposable = endpoints.filter((endpoint) => dryRunOf(endpoint) !== undefined);
  return [
    {
      name: "list_changes",
      title: "List changes that can be proposed",
      description:
        "Lists the changes that your role can propose with propose_change. With a name, returns the JSON Schema of its body and query.",
      inputSchema: objectSchema({ name: text("Name of a change, for its schema.") }),
      readOnly: true,
      call: async (given, caller) => {
        if (given.name !== undefined) {
          const { name, method, route, description, body, query } = findEndpoint(
            proposable,
            given.name,
            "list_changes",
          );
          const schemas = { body: requestSchema(body), query: requestSchema(query) };
          const change = { name, method, path: `/${route}`, description, ...schemas };
          return { text: answerText("list_changes", change, false) };
        }
        const items = (await callable(proposable, caller)).map(({ name, method, route, summary }) => ({
          name,
          method,
          path: `/${route}`,
          summary,
        }));
        return { text: JSON.stringify({ items }) };
      },
    },
    {
      name: "propose_change",
      title: "Propose a change",
      description:
        "Makes the dry run of a change and stores a proposal. Changes nothing: a person sees the exact request on the page of the service and approves or rejects it there, within 24 hours.",
      inputSchema: objectSchema(
        {
          name: text("Name of the change, from list_changes."),
          path_parameters: values("Values of the parameters in braces in the path."),
          query: values("Query parameters, without preview."),
          body: { type: "object", description: "The body, without dryRun." },
          reason: { ...text("Why you propose this, for the person who decides."), maxLength: MAX_REASON_CHARACTERS },
        },
        ["name", "reason"],
      ),
      readOnly: false,
      call: async (given, caller) => await propose(proposable, given, caller),
    },
  ];
}

/** Stores a proposal, after its dry run succeeded. */
async function propose(proposable: Endpoints, given: Record<string, unknown>, caller: ToolCaller): Promise<ToolAnswer> {
  const endpoint = findEndpoint(proposable, given.name, "list_changes");
  const { body } = given;
  if (body !== undefined && (typeof body !== "object" || body === null || Array.isArray(body)))
    throw invalidArgument("body", "must be an object");
  if (typeof given.reason !== "string" || given.reason === "" || given.reason.length > MAX_REASON_CHARACTERS)
    throw invalidArgument("reason", `must be a text of 1 to ${MAX_REASON_CHARACTERS} characters`);
  const params = textsOf(given.path_parameters, "path_parameters");
  const query = textsOf(given.query, "query");
  const bodyText = body === undefined ? undefined : JSON.stringify(body);
  if (bodyText !== undefined && bodyText.length > MAX_BODY_CHARACTERS)
    throw invalidArgument("body", `must have at most ${MAX_BODY_CHARACTERS} characters`);
  const input: RequestInput = { params, query, body };
  const dryRun = await callInProcess(endpoint, dryRunInput(dryRunOf(endpoint)!, input), caller);
  const path = pathOf(endpoint, params);
  const dryRunText = JSON.stringify(dryRun.json ?? null);
  if (dryRunText.length > MAX_DRY_RUN_CHARACTERS)
    throw new Problem(
      "invalidRequest",
      `The dry run has ${dryRunText.length} characters. A person can check at most ${MAX_DRY_RUN_CHARACTERS} in a proposal. Propose a smaller change, or make it with the REST API.`,
    );
  const dryRunEtag = dryRun.headers?.ETag;
  const proposal = await caller.services.proposals.create(
    {
      endpoint: endpoint.name,
      summary: endpoint.summary,
      method: endpoint.method,
      path,
      params,
      query,
      ...(bodyText !== undefined && { body: bodyText }),
      dryRun: dryRunText,
      ...(dryRunEtag !== undefined && { dryRunEtag }),
      reason: given.reason,
    },
    caller.actor,
    caller.caller,
  );
  const where = caller.origin === undefined ? "#/proposals" : `${caller.origin}/#/proposals`;
  const answer = { proposal, next: `Nothing was changed. A person decides on the page ${where}.` };
  return { text: answerText("propose_change", answer, false), endpoint: `${endpoint.method} /${endpoint.route}` };
}

/** Reads an endpoint and returns its short answer. */
async function readEndpoint(
  endpoint: Endpoint<Services>,
  input: RequestInput,
  caller: ToolCaller,
): Promise<ToolAnswer> {
  const isPage = queryNames(plain(endpoint)).includes("limit");
  const read = (query: Record<string, string>) => callInProcess(endpoint, { ...input, query }, caller);
  const reply = isPage
    ? await shortPage(pageSize(input.query.limit), (limit) => read({ ...input.query, limit: String(limit) }))
    : await read(input.query);
  return {
    text: answerText(`GET ${pathOf(endpoint, input.params)}`, reply.json ?? null, isPage),
    endpoint: `GET /${endpoint.route}`,
  };
}

/**
 * Returns whether the tool `read` can call an endpoint: it reads, returns JSON, and is neither an export nor a document about the
 * API.
 */
function isReadable({ method, access, interactive, credential, route, responds, tag }: Endpoint<Services>): boolean {
  const answer = responds[200];
  const hasJson = answer !== undefined && ("shape" in answer || "json" in answer || "_zod" in answer);
  const isExport = route.split("/").includes("export");
  const isForPrograms = access !== "open" && !interactive && !credential && tag !== "Documentation";
  return method === "GET" && hasJson && !isExport && isForPrograms;
}

/** Returns the endpoints that the caller's role and the license allow. */
async function callable(endpoints: Endpoints, { actor, gate }: ToolCaller): Promise<Endpoint<Services>[]> {
  const tier: Tier = await gate.tier();
  return endpoints.filter(
    (endpoint) =>
      endpoint.access !== "open" &&
      mayCall(actor.role, endpoint.access) &&
      (endpoint.tier === "core" || tier === "pro"),
  );
}

function findEndpoint(endpoints: Endpoints, name: unknown, tool: string): Endpoint<Services> {
  const endpoint = endpoints.find((one) => one.name === name);
  if (!endpoint) throw invalidArgument("name", `must be a name from ${tool}`);
  return endpoint;
}

/** Returns the endpoint without the type of the services, as functions that read only the declaration take it. */
const plain = (endpoint: Endpoint<Services>): Endpoint<never> => endpoint as unknown as Endpoint<never>;

/** Rejects unknown and missing arguments. The endpoint validates their values. */
function requireArguments(given: Record<string, unknown>, { properties, required }: ObjectSchema): void {
  const unknown = Object.keys(given).find((name) => !Object.hasOwn(properties, name));
  if (unknown !== undefined)
    throw invalidArgument(unknown.slice(0, 64), `is not an argument. Arguments: ${Object.keys(properties).join(", ")}`);
  const missing = required.find((name) => given[name] === undefined);
  if (missing !== undefined) throw invalidArgument(missing, "is required");
}

const invalidArgument = (name: string, message: string): Problem =>
  new Problem("invalidRequest", `The argument ${name} ${message}.`, { errors: [{ path: name, message }] });

/** Returns an argument as the text of a query: lists with commas. */
const textOf = (value: unknown): string =>
  Array.isArray(value)
    ? value.map(String).join(",")
    : typeof value === "object"
      ? JSON.stringify(value)
      : String(value);

/** Returns an argument of named values as texts. */
function textsOf(value: unknown, name: string): Record<string, string> {
  if (value === undefined) return {};
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw invalidArgument(name, "must be an object");
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, textOf(member)]));
}
