import type * as z from "zod";
import type { Logger } from "../runtime.ts";
import type { ProblemCode } from "./problem.ts";
import type { Reply } from "./reply.ts";

/**
 * Roles of users. `user` reads. `auditor` also reads the audit log. `operator` also runs daily operations without changing
 * rules (scans, snoozes, exemptions, test messages). `admin` has all permissions.
 */
export const ROLES = ["user", "auditor", "operator", "admin"] as const;
export type Role = (typeof ROLES)[number];

/** Minimum role that may call an endpoint. `open` requires no authentication. */
export type Access = "open" | Role;

/** The access levels that each role includes. Neither auditor nor operator includes the other. */
const REACH: Record<Role, readonly Role[]> = {
  user: ["user"],
  auditor: ["user", "auditor"],
  operator: ["user", "operator"],
  admin: ROLES,
};

/** Returns whether a role may call endpoints with the minimum role `least`. */
export const mayCall = (role: Role, least: Role): boolean => REACH[role].includes(least);

export type Tier = "core" | "pro";
export type Method = "GET" | "POST" | "PUT" | "DELETE";

/** The authenticated caller of a request. */
export interface Actor {
  /** Username, or `entra:<tenant>:<object id>` for an Entra access token. */
  username: string;
  role: Role;
  credential: ActorCredential;
  /** True if an administrator set the password of this sign-in: see `beforePasswordChange`. */
  mustChangePassword?: boolean;
  /** True if the user must enroll a second factor: see `beforeEnrollment`. */
  mustEnrollSecondFactor?: boolean;
  /** Time at which the person last confirmed this credential: with a second factor, or at the identity provider. */
  confirmedAt?: Date | undefined;
}

/** The credential of a request. `id` identifies it for revocation (shared/access). `since` is the time of the sign-in. */
export type ActorCredential =
  | { kind: "token"; id: string; since: Date; expiresAt: Date }
  | { kind: "session"; id: string; since: Date }
  | { kind: "apiToken"; id: string }
  | { kind: "entra" };

/**
 * Returns whether the caller is a person who signed in here. API tokens and Entra tokens can't change passwords, tokens or
 * sessions.
 */
export const isInteractive = ({ credential }: Actor): boolean =>
  credential.kind === "token" || credential.kind === "session";

/** Protocol of a call that is not REST: the Model Context Protocol, with which assistants call tools. */
export type Via = "mcp";

/** Actor, address and request, as recorded in the audit log with every effect. */
export interface Caller {
  /** Username; `anonymous`; or `system` for timers and queues. */
  actor: string;
  /** The protocol through which the call came, if it is not REST. The audit log shows it. */
  via?: Via;
  /** Role that authorized the call. Absent for timers, queues and commands. */
  role?: Role;
  address?: string;
  requestId: string;
}

/** The confirmations that a guarded request needs: a fresh sign-in (step-up), and another administrator's approval. */
export interface Confirmations {
  stepUp: boolean;
  approval: boolean;
}

/**
 * Declares a response: JSON with its schema, or a file with its media type and an example. The API description has one media
 * type for each response, so that generated clients have a single type. Alternative files are in an extension of it.
 */
export type ResponseDeclaration =
  | z.ZodType
  | {
      /** Schema of the JSON that the endpoint returns by default. */
      json: z.ZodType;
      /** Media types of the files that a query parameter requests instead. Each file also has an operation of its own. */
      or: readonly string[];
    }
  | {
      description: string;
      /** `null` for an answer without a body, such as a redirect. */
      mediaType: string | null;
      example?: string;
    };

export type Responses = Readonly<Record<number, ResponseDeclaration>>;

/**
 * The JSON that a handler can reply with: the output types of the schemas in `responds`. Replies are not parsed with these
 * schemas, so a handler returns their output. `never` if `responds` declares only files and redirects.
 */
export type ResponseJson<R extends Responses> = JsonOf<R[keyof R]>;
type JsonOf<D> = D extends z.ZodType
  ? DeepReadonly<z.output<D>>
  : D extends { json: infer S extends z.ZodType }
    ? DeepReadonly<z.output<S>>
    : never;
/** Replies are only serialized, so they can contain readonly data. */
type DeepReadonly<T> = T extends readonly (infer Item)[]
  ? readonly DeepReadonly<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> }
    : T;

/** A validated request, as a handler receives it. */
export interface RequestContext<Services, Params, Query, Body> {
  params: Params;
  query: Query;
  body: Body;
  /** Set on every endpoint whose access is not `open`. */
  actor: Actor;
  /** The confirmations that this request needed and has. None on an endpoint that is not `guarded`. */
  confirmed: Confirmations;
  caller: Caller;
  /** The `If-Match` header, if the caller sent one. */
  ifMatch: string | undefined;
  headers: Headers;
  url: URL;
  /** The service's own origin. Undefined if it is not configured: see `ownOrigin`. */
  origin: string | undefined;
  services: Services;
  /**
   * Authenticates and counts the caller of a standalone endpoint with this access, as for other endpoints. A rejection is
   * recorded in the audit log. With `open` there is no actor.
   *
   * @throws {Problem} unauthorized, forbidden, rateLimited
   */
  admit: (access: Access) => Promise<{ actor: Actor; services: Services }>;
  log: Logger;
}

/** The parts of a request that decide whether it must be confirmed. */
type GuardedContext<Services, Params, Query, Body> = Pick<
  RequestContext<Services, Params, Query, Body>,
  "params" | "query" | "body" | "actor" | "services"
>;

/**
 * Whether a request needs the confirmations that the settings require: `true` all of them, `false` none, `stepUp` a step-up but no
 * approval. `boundTo`: all of them, and the stored state that the request is about. An approval does not count after that state
 * changed.
 */
type GuardDecision = boolean | "stepUp" | { boundTo: unknown };

type Input<S> = S extends z.ZodType ? z.input<S> : undefined;

/** Parts of a request in their wire form. */
export interface RequestExample<P, Q, B> {
  params?: Partial<Input<P>>;
  query?: Partial<Input<Q>>;
  body?: Input<B>;
}

/** How a repeat of a request is answered: from the resource, because the answer is not stored. */
export interface Repeat<Services, Params, Json> {
  /** Returns the ID of the resource in an answer. Null for an answer about no resource, such as a plan. */
  idOf(answer: Json): string | null;
  /** Returns the resource as it is now. */
  answer(context: { id: string; params: Params; services: Services }): Promise<Json>;
}

type Output<S> = S extends z.ZodType ? z.output<S> : undefined;

/** The declaration of an endpoint: the pipeline, the registration and the API description follow from it. */
export interface EndpointDeclaration<
  Services,
  P extends z.ZodObject | undefined = z.ZodObject | undefined,
  Q extends z.ZodObject | undefined = z.ZodObject | undefined,
  B extends z.ZodType | undefined = z.ZodType | undefined,
  R extends Responses = Responses,
> {
  /** Name of the function. The platform matches routes in the order of these names. */
  name: string;
  method: Method;
  /** Route without a leading slash. Parameters are `{name}`. */
  route: string;
  summary: string;
  description?: string;
  tag: string;
  access: Access;
  /** `pro` endpoints are rejected without a license, including open endpoints. */
  tier: Tier;
  /** True if API tokens and Entra tokens are rejected: see `isInteractive`. */
  interactive?: boolean;
  /**
   * The only accepted credential. `session`: a browser session, which no program has. `programToken`: an API token or an Entra
   * token, and no cookie is read.
   */
  credential?: "session" | "programToken";
  /** Protocol of the endpoint, if it is not REST. The audit entries of its requests show it. */
  via?: Via;
  /** True if users can call it before they have replaced a password that an administrator set. */
  beforePasswordChange?: boolean;
  /**
   * True if users can call it before they have enrolled a second factor that the setting requireSecondFactor requires. They can
   * also call the endpoints with `beforePasswordChange`.
   */
  beforeEnrollment?: boolean;
  params?: P;
  /** Parameters with their names in the specification. Callers can use camelCase or snake_case. */
  query?: Q;
  /**
   * Set on endpoints by which a secret can leave, or with which a user can get around a confirmation. Returns whether this
   * request needs the confirmations that the settings requireStepUp and requireApproval require. Called before the handler, and
   * only if a setting requires a confirmation.
   */
  guarded?: (
    context: GuardedContext<Services, Output<P>, Output<Q>, Output<B>>,
    required: Confirmations,
  ) => GuardDecision | Promise<GuardDecision>;
  /** Returns what the approver of a guarded request sees of its secrets, such as the host of a URL. Never a secret. */
  approverSees?: (body: Output<B>) => Record<string, unknown>;
  /** Callers can use camelCase or snake_case. Unknown members are rejected. */
  body?: B;
  /** True if the body can be omitted. The schema then parses `{}`. */
  bodyOptional?: boolean;
  /** Whether the body can also be a form (application/x-www-form-urlencoded), whose values are all text. */
  form?: boolean;
  /**
   * How a repeat with the same `Idempotency-Key` is answered. An endpoint can have it if its answer is one resource and shows no
   * secret. Endpoints without it and without `harmlessRepeat` reject the key.
   */
  repeat?: Repeat<Services, Output<P>, ResponseJson<R>>;
  /**
   * True for a POST that a repeat runs again: it only reads, or its effect is the same however often it runs. An
   * `Idempotency-Key` is then accepted and ignored, as clients can send one with every POST.
   */
  harmlessRepeat?: boolean;
  /** Whether `If-Match` is supported. For the API description. */
  conditional?: boolean;
  /**
   * Whether a GET answers with an `ETag`, and 304 to `If-None-Match`. Default: if the answer has a member `etag`. Not for answers
   * that contain the time at which they were built.
   */
  versioned?: boolean;
  /**
   * Example request against the simulated company of `npm start`, for the API description and its try-out page. Must be
   * harmless, and succeed, or answer 404 for an id that does not exist. Defaults: for a path, the examples of its parameters;
   * for a body, the examples of its schema.
   */
  example?: RequestExample<P, Q, B>;
  responds: R;
  /** Further problems of this endpoint that its declaration does not imply. For the API description. */
  problems?: readonly ProblemCode[];
  /** Cookies that an answer sets or deletes. For the API description. */
  cookies?: readonly string[];
  /** `caller` (default) counts against the caller's limit, `signIn` against the stricter sign-in limit, `none` not at all. */
  rateLimit?: "caller" | "signIn" | "none";
  /**
   * Number of time slots that an expensive answer takes (see `Pace`). Callers of such answers wait for each other, and other
   * callers do not wait. Undefined for an answer that waits for no slot.
   */
  paced?: number;
  /** True if the endpoint is open, not counted, and answered without loading the services. */
  standalone?: boolean;
  /** True for addresses that browsers navigate to. Callers that accept HTML get problems as a page. */
  page?: boolean;
  /** Excluded from the OpenAPI document: the catch-all and the files of the documentation pages. */
  undocumented?: boolean;
  handle(context: RequestContext<Services, Output<P>, Output<Q>, Output<B>>): Promise<Reply<ResponseJson<R>>>;
}

/** A declaration without its input types, for registration, the pipeline and OpenAPI. */
export type Endpoint<Services> = Omit<
  EndpointDeclaration<Services>,
  "handle" | "example" | "guarded" | "approverSees" | "repeat"
> & {
  // biome-ignore lint/suspicious/noExplicitAny: as for `handle`
  approverSees?: (body: any) => Record<string, unknown>;
  // biome-ignore lint/suspicious/noExplicitAny: as for `handle`
  repeat?: Repeat<Services, any, any>;
  example?: { params?: object; query?: object; body?: unknown };
  // biome-ignore lint/suspicious/noExplicitAny: the types of params, query and body are checked where it is declared
  handle(context: RequestContext<Services, any, any, any>): Promise<Reply>;
  guarded?: (
    // biome-ignore lint/suspicious/noExplicitAny: as for `handle`
    context: GuardedContext<Services, any, any, any>,
    required: Confirmations,
  ) => GuardDecision | Promise<GuardDecision>;
};

/** Returns whether a request may have an `Idempotency-Key`. */
export const acceptsKey = ({ repeat, harmlessRepeat }: Pick<Endpoint<never>, "repeat" | "harmlessRepeat">): boolean =>
  repeat !== undefined || harmlessRepeat === true;

/** Returns whether answers of the endpoint have a version: an `ETag`, which `If-None-Match` can name. */
export const isVersioned = ({
  method,
  versioned,
  responds,
}: Pick<Endpoint<never>, "method" | "versioned" | "responds">): boolean =>
  method === "GET" && (versioned ?? hasMember(responds[200], "etag"));

const hasMember = (declared: ResponseDeclaration | undefined, name: string): boolean =>
  declared !== undefined && "shape" in declared && Object.hasOwn((declared as z.ZodObject).shape, name);

/** Returns the methods that the endpoint serves. An endpoint for GET also answers HEAD (RFC 9110, 9.1), which probes use. */
export const methodsOf = ({ method }: { method: Method }): (Method | "HEAD")[] =>
  method === "GET" ? ["GET", "HEAD"] : [method];

/** Binds the type of the services, so that each declaration infers the types of its own input. */
export function endpointFor<Services>() {
  return <
    P extends z.ZodObject | undefined = undefined,
    Q extends z.ZodObject | undefined = undefined,
    B extends z.ZodType | undefined = undefined,
    R extends Responses = Responses,
  >(
    declaration: EndpointDeclaration<Services, P, Q, B, R>,
  ): Endpoint<Services> => declaration as Endpoint<Services>;
}
