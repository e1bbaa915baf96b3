import type * as z from "zod";
import type { Logger } from "../runtime.ts";
import type { ProblemCode } from "./problem.ts";
import type { Reply } from "./reply.ts";

/**
 * What a user may be. `user` reads; `auditor` also reads the audit log; `operator` also keeps the work going without
 * changing a rule (scans, snoozes, exemptions, test messages); `admin` may everything.
 */
export const ROLES = ["user", "auditor", "operator", "admin"] as const;
export type Role = (typeof ROLES)[number];

/** The least role that may call an endpoint; `open` needs no token. */
export type Access = "open" | Role;

/** For each role, the endpoints it may call by their least role. Between auditor and operator there is no order. */
const REACH: Record<Role, readonly Role[]> = {
  user: ["user"],
  auditor: ["user", "auditor"],
  operator: ["user", "operator"],
  admin: ROLES,
};

/** Whether a role may call what needs at least the role `least`. */
export const mayCall = (role: Role, least: Role): boolean => REACH[role].includes(least);

export type Tier = "core" | "pro";
export type Method = "GET" | "POST" | "PUT" | "DELETE";

/** Who a request is made by. */
export interface Actor {
  /** A user's name, or `entra:<tenant>:<object id>` for an access token of Entra. */
  username: string;
  role: Role;
  credential: ActorCredential;
  /** True when the password that it signed in with was set by an administrator: see `beforePasswordChange`. */
  mustChangePassword?: boolean;
}

/** What a request was authenticated with. `id` is what ends it: see `Access`; `since` is the instant of the sign-in. */
export type ActorCredential =
  | { kind: "token"; id: string; since: Date; expiresAt: Date }
  | { kind: "session"; id: string; since: Date }
  | { kind: "apiToken"; id: string }
  | { kind: "entra" };

/** Whether a person stands behind it who signed in here: programs' tokens change no password, token or session. */
export const isInteractive = ({ credential }: Actor): boolean =>
  credential.kind === "token" || credential.kind === "session";

/** Who did something, from where and in which request: what the audit log writes beside every effect. */
export interface Caller {
  /** The username, `anonymous`, or `system` for timers and queues. */
  actor: string;
  /** The role it was allowed by; absent where nobody asked (timers, queues, commands). */
  role?: Role;
  address?: string;
  requestId: string;
}

/**
 * What a declared response looks like: JSON by its schema, or a file by its media type, with an example of it. An answer is
 * described with one media type, so that clients made of the description know its type.
 */
export type ResponseDeclaration =
  | z.ZodType
  | {
      /** JSON that a parameter of the specification turns into one of these files; the file has its own operation too. */
      json: z.ZodType;
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

export interface RequestContext<Services, Params, Query, Body> {
  params: Params;
  query: Query;
  body: Body;
  /** Present on every endpoint whose access is not `open`. */
  actor: Actor;
  caller: Caller;
  /** The `If-Match` header, when the caller sent one. */
  ifMatch: string | undefined;
  headers: Headers;
  url: URL;
  /** Our own origin, undefined when nobody configured it: see `ownOrigin`. */
  origin: string | undefined;
  services: Services;
  /**
   * For an endpoint that does not count its caller, and needs to after all: lets the caller in as an endpoint with this
   * access does. It is counted, and a refusal is entered in the audit log. There is no actor where the access is `open`.
   *
   * @throws {Problem} unauthorized, forbidden, rateLimited
   */
  admit: (access: Access) => Promise<{ actor: Actor; services: Services }>;
  log: Logger;
}

type Input<S> = S extends z.ZodType ? z.input<S> : undefined;

/** Parts of a request as they are sent. */
export interface RequestExample<P, Q, B> {
  params?: Partial<Input<P>>;
  query?: Partial<Input<Q>>;
  body?: Input<B>;
}

type Output<S> = S extends z.ZodType ? z.output<S> : undefined;

export interface EndpointDeclaration<
  Services,
  P extends z.ZodObject | undefined = z.ZodObject | undefined,
  Q extends z.ZodObject | undefined = z.ZodObject | undefined,
  B extends z.ZodType | undefined = z.ZodType | undefined,
  R extends Responses = Responses,
> {
  /** The function's name on the platform, which matches routes in the order of these names. */
  name: string;
  method: Method;
  /** The route without a leading slash, parameters as `{name}`. */
  route: string;
  summary: string;
  description?: string;
  tag: string;
  access: Access;
  /** PRO endpoints are refused without a licence, open ones too. */
  tier: Tier;
  /** True where an API token or a token of Entra is refused: see `isInteractive`. */
  interactive?: boolean;
  /** True where somebody may call who must choose another password first. */
  beforePasswordChange?: boolean;
  params?: P;
  /** Parameters by the names the specification gives; the camelCase and snake_case form of each are both taken. */
  query?: Q;
  /** Taken in camelCase and snake_case; members it does not know are refused. */
  body?: B;
  /** True where the specification lets the body be left out; the schema then gets `{}`. */
  bodyOptional?: boolean;
  /** Whether the body is also taken as a form (application/x-www-form-urlencoded), all of whose values are text. */
  form?: boolean;
  /** Whether `If-Match` is honoured, for the description. */
  conditional?: boolean;
  /**
   * A request of the company that `npm start` shows, for the description and for what its pages try out: answered with success,
   * or with 404 for an id that nothing has, and harmless. Left out, a path has the examples of its parameters by their names and
   * a body what its schema gives.
   */
  example?: RequestExample<P, Q, B>;
  responds: R;
  /** Problems it answers with beyond those that the rest of its declaration implies, for the description. */
  problems?: readonly ProblemCode[];
  /** The cookies that an answer sets, or takes away, for the description. */
  cookies?: readonly string[];
  /** `caller` (default) counts against the caller, `signIn` against the stricter bucket, `none` not at all. */
  rateLimit?: "caller" | "signIn" | "none";
  /** Turns of the pace that its answer takes up, so that who loads much of it slows nobody but others who do. */
  paced?: number;
  /** Open, uncounted, and answered without the services, which then need not even be loaded. */
  standalone?: boolean;
  /** For addresses that people's browsers are sent to: who prefers HTML gets its problems as a page, by `Accept`. */
  page?: boolean;
  /** Left out of the OpenAPI document: the catch-all and the files behind the documentation pages. */
  undocumented?: boolean;
  handle(context: RequestContext<Services, Output<P>, Output<Q>, Output<B>>): Promise<Reply<ResponseJson<R>>>;
}

/** A declaration whose input types are forgotten: what registration, the pipeline and OpenAPI work on. */
export type Endpoint<Services> = Omit<EndpointDeclaration<Services>, "handle" | "example"> & {
  example?: { params?: object; query?: object; body?: unknown };
  // biome-ignore lint/suspicious/noExplicitAny: the types of params, query and body are checked where it is declared
  handle(context: RequestContext<Services, any, any, any>): Promise<Reply>;
};

/** The methods a path takes by this endpoint: whatever answers GET answers HEAD (RFC 9110, 9.1), as probes ask. */
export const methodsOf = ({ method }: { method: Method }): (Method | "HEAD")[] =>
  method === "GET" ? ["GET", "HEAD"] : [method];

/** Fixes the services once, so that every declaration infers the types of its own input. */
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
