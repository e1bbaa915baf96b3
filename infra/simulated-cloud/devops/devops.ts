import type { Directory } from "../graph/directory.ts";
import { type ApplicationRecord, DEFAULT_AUDIENCE, newKeyId } from "../graph/records.ts";
import { type IncomingRequest, jsonObject, type Operation, type Service, type ServiceResponse } from "../http.ts";
import { bearerToken, type Claims, type Tokens } from "../tokens.ts";
import { guidFrom } from "../vaults/identifiers.ts";
import {
  ANONYMOUS,
  denied,
  errorResponses,
  invalid,
  message,
  missing,
  notSignedIn,
  rateHeaders,
  TOKEN_MODES,
  type TokenMode,
} from "./errors.ts";
import { connectionJson, projectJson, variableGroupJson } from "./json.ts";
import { type Connection, MASKED, type Organization, type Project, parameter, type Variable } from "./organization.ts";

/** Resource ID of Azure DevOps, as the audience of tokens. */
export const DEVOPS_AUDIENCE = "499b84ac-1321-427f-aa17-267ca6975798";

/** Time of a concurrent change by another user, relative to the service's request for the same group or connection. */
export type ConcurrentChangeTime = "afterRead" | "beforeWrite" | "afterWrite";

export interface DevopsParts {
  organization: Organization;
  tokens: Tokens;
  directory: Directory;
  /** Identities of the service. They are users of the organization from the start. */
  members: readonly string[];
  /** `https://devops.localhost:port` */
  origin: string;
  /** Returns `https://evil.localhost:port`, the target of a redirect that clients must not follow. */
  foreignOrigin(): string;
}

/** Projects per page. Small, so that a few projects already fill more than one page. */
const PROJECTS_PER_PAGE = 3;

type Handler = () => ServiceResponse;

/** Simulates Azure DevOps Services, REST API version 7.1: projects, variable groups and service connections. */
export class Devops {
  readonly organization: Organization;
  /** Object IDs of the principals who are users of the organization. */
  readonly members: Set<string>;
  /**
   * Response to every token. Undefined: valid tokens are accepted, and the response to others is a sign-in page with status
   * 203.
   */
  tokenMode: TokenMode | undefined;
  /** Adds rate-limit headers with this delay to the given number of responses. */
  slowed = { seconds: 0, times: 0 };
  readonly #parts: DevopsParts;
  #concurrentChanges: { when: ConcurrentChangeTime; id: string; change: () => void }[] = [];

  constructor(parts: DevopsParts) {
    this.#parts = parts;
    this.organization = parts.organization;
    this.members = new Set(parts.members);
  }

  /**
   * Changes the response to tokens, the rate limit or the users of the organization. Omitted members stay.
   * @throws {Error} for an unknown token mode.
   */
  set(changes: { tokenMode?: unknown; slowed?: unknown; members?: unknown }): void {
    if (changes.tokenMode !== undefined) {
      const mode = TOKEN_MODES.find((one) => one === changes.tokenMode);
      if (mode === undefined && changes.tokenMode !== null) throw new Error("Unknown token mode");
      this.tokenMode = mode;
    }
    if (changes.slowed !== undefined) this.slowed = changes.slowed as Devops["slowed"];
    if (changes.members !== undefined) {
      this.members.clear();
      for (const member of changes.members as string[]) this.members.add(member);
    }
  }

  /** Runs a change once: the next time that the service reads or writes this variable group or service connection. */
  scheduleConcurrentChange(when: ConcurrentChangeTime, id: string | number, change: () => void): void {
    this.#concurrentChanges.push({ when, id: String(id), change });
  }

  /** Returns the value of a secret variable, or the key of a connection. */
  value(name: string, variable?: string): string | null | undefined {
    if (variable !== undefined) return this.organization.groupNamed(name).variables[variable]?.value;
    return parameter(this.organization.connectionNamed(name), "serviceprincipalkey");
  }

  readonly service: Service = (request): Operation | undefined => {
    const [organization = "", ...path] = request.segments;
    const claims = this.#claims(request);
    const matched = this.#find(request, path, claims);
    if (!matched) return undefined;
    const [name, answer] = matched;
    return {
      name: `devops.${name}`,
      errorResponses,
      item: organization,
      anonymous: claims === undefined,
      answer: () => {
        if (organization.toLowerCase() !== this.organization.name) return missing("The organization");
        // Azure DevOps can answer this one operation to anyone. The user is then the anonymous one.
        const allowsAnonymous = this.tokenMode === "anonymous" && name === "connectionData";
        if (!allowsAnonymous && (this.tokenMode !== undefined || claims === undefined)) {
          return notSignedIn(this.tokenMode ?? "page203", this.#parts.foreignOrigin());
        }
        if (!allowsAnonymous && !this.members.has(claims!.oid)) {
          return message(
            401,
            "TF400813",
            `The user '${claims!.oid}' is not authorized to access this resource.`,
            "UnauthorizedRequestException",
          );
        }
        if (!/^7\.\d(-preview(\.\d)?)?$/.test(request.query.get("api-version") ?? "")) {
          return invalid("No api-version was supplied.");
        }
        return this.#withRateLimit(answer());
      },
    };
  };

  #claims(request: IncomingRequest): Claims | undefined {
    const token = bearerToken(request.headers.authorization);
    const claims = token === undefined ? undefined : this.#parts.tokens.check(token, [DEVOPS_AUDIENCE]);
    return typeof claims === "object" ? claims : undefined;
  }

  #withRateLimit(answer: ServiceResponse): ServiceResponse {
    if (answer.status !== 200 || this.slowed.times <= 0) return answer;
    this.slowed.times--;
    return { ...answer, headers: { ...answer.headers, ...rateHeaders(this.slowed.seconds) } };
  }

  /**
   * Returns the name and the handler of an operation. The path starts with a project, except for operations of the whole
   * organization. The routes below have `project` in its place and `ID` in place of an ID.
   */
  #find(request: IncomingRequest, path: string[], claims: Claims | undefined): [string, Handler] | undefined {
    const { method, query } = request;
    const project = path[0] === "_apis" ? undefined : path[0];
    const [apis, area, resource, id, ...more] = project === undefined ? path : path.slice(1);
    if (apis !== "_apis" || more.length > 0) return undefined;
    const route = `${method} ${area}${resource === undefined ? "" : `/${resource}`}${id === undefined ? "" : "/ID"}`;
    const inProject =
      (answer: (project: Project) => ServiceResponse): Handler =>
      () => {
        const existing = this.organization.project(project ?? "");
        if (!existing) return missing("The project");
        return existing.rights === "none" ? denied() : answer(existing);
      };
    switch (`${project === undefined ? "" : "project "}${route}`) {
      case "GET connectionData":
        return ["connectionData", () => this.#connectionData(claims)];
      case "GET projects":
        return ["listProjects", () => this.#projects(query)];
      case "project GET distributedtask/variablegroups":
        return ["listVariableGroups", inProject((one) => this.#groups(one, query))];
      case "project GET distributedtask/variablegroups/ID":
        return ["getVariableGroup", inProject((one) => this.#group(one, id!))];
      case "PUT distributedtask/variablegroups/ID":
        return ["putVariableGroup", () => this.#putGroup(id!, request)];
      case "project GET serviceendpoint/endpoints":
        return ["listConnections", inProject((one) => this.#connections(one, query))];
      case "project GET serviceendpoint/endpoints/ID":
        return ["getConnection", inProject((one) => this.#connection(one, id!))];
      case "PUT serviceendpoint/endpoints/ID":
        return query.get("operation") === "ConvertAuthenticationScheme"
          ? ["convertConnection", () => this.#convertConnection(id!, request)]
          : ["putConnection", () => this.#putConnection(id!, request)];
      case "project POST serviceendpoint/endpointproxy":
        return ["testConnection", inProject((one) => this.#testConnection(one, request))];
      default:
        return undefined;
    }
  }

  #connectionData(claims: Claims | undefined): ServiceResponse {
    const isAuthenticated = claims !== undefined && this.tokenMode === undefined;
    const user = isAuthenticated
      ? { id: claims.oid, providerDisplayName: "The service" }
      : { id: ANONYMOUS, providerDisplayName: "Anonymous" };
    return {
      status: 200,
      body: {
        authenticatedUser: { ...user, descriptor: "", subjectDescriptor: "", isActive: true, properties: {} },
        authorizedUser: user,
        instanceId: "2f8ea3e5-0b5a-4b5c-9a11-6f8f2f7a2f11",
        deploymentType: "hosted",
      },
    };
  }

  #projects(query: URLSearchParams): ServiceResponse {
    const from = Number(query.get("continuationToken") ?? 0);
    const size = Math.min(Number(query.get("$top") ?? 100), PROJECTS_PER_PAGE);
    const base = `${this.#parts.origin}/${this.organization.name}`;
    const value = this.organization.projects.slice(from, from + size).map((one) => projectJson(one, base));
    const nextPosition = from + size;
    return {
      status: 200,
      ...(nextPosition < this.organization.projects.length && {
        headers: { "x-ms-continuationtoken": String(nextPosition) },
      }),
      body: { count: value.length, value },
    };
  }

  #groups(project: Project, query: URLSearchParams): ServiceResponse {
    const visible = [...this.organization.groups.values()].filter(({ projects }) =>
      projects.some(({ id }) => id === project.id),
    );
    const manageable = query.get("actionFilter") === "manage" && project.rights !== "manage" ? [] : visible;
    const value = manageable.map(variableGroupJson);
    return { status: 200, body: { count: value.length, value } };
  }

  #group(project: Project, id: string): ServiceResponse {
    const group = this.organization.groups.get(Number(id));
    // For a missing group or connection, Azure DevOps returns null and not 404.
    if (!group?.projects.some((one) => one.id === project.id)) return { status: 200, body: null };
    const body = variableGroupJson(group);
    this.#runConcurrentChange("afterRead", id);
    return { status: 200, body };
  }

  #putGroup(id: string, request: IncomingRequest): ServiceResponse {
    this.#runConcurrentChange("beforeWrite", id);
    const group = this.organization.groups.get(Number(id));
    if (!group) return missing("The variable group");
    const body = jsonObject(request);
    const references = body?.variableGroupProjectReferences;
    // Without project references, Azure DevOps reports a missing permission:
    // https://github.com/MicrosoftDocs/vsts-rest-api-specs/issues/531
    if (!Array.isArray(references) || references.length === 0) {
      return message(
        401,
        "TF400813",
        "The user is not authorized to access this resource.",
        "UnauthorizedRequestException",
      );
    }
    if (group.projects.some(({ id: one }) => this.organization.project(one)?.rights !== "manage")) return denied();
    if (body?.type !== group.type || typeof body.name !== "string")
      return invalid("The group's name or type is wrong.");
    const newVariables = body.variables as Record<string, Partial<Variable> | null> | undefined;
    if (typeof newVariables !== "object" || newVariables === null) return invalid("A group has at least one variable.");
    // A variable that the body omits is deleted. A secret variable without a value keeps its value.
    const variables = Object.entries(newVariables).map(([name, variable]): [string, Variable] => {
      const previous = group.variables[name];
      const isSecret = variable?.isSecret === true;
      const previousValue = isSecret && previous?.isSecret ? previous.value : null;
      return [name, { ...variable, value: variable?.value ?? previousValue }];
    });
    group.variables = Object.fromEntries(variables);
    group.name = body.name;
    if (typeof body.description === "string") group.description = body.description;
    Object.assign(group, { modifiedOn: this.organization.now(), modifiedBy: "The service" });
    const answer = variableGroupJson(group);
    this.#runConcurrentChange("afterWrite", id);
    return { status: 200, body: answer };
  }

  #connections(project: Project, query: URLSearchParams): ServiceResponse {
    const type = query.get("type");
    const visible = [...this.organization.connections.values()].filter(
      (one) => one.projects.some(({ id }) => id === project.id) && (type === null || one.type === type),
    );
    const manageable = query.get("actionFilter") === "manage" && project.rights !== "manage" ? [] : visible;
    const value = manageable.map(connectionJson);
    return { status: 200, body: { count: value.length, value } };
  }

  #connection(project: Project, id: string): ServiceResponse {
    const connection = this.#connectionOf(project, id);
    if (!connection) return { status: 200, body: null };
    const body = connectionJson(connection);
    this.#runConcurrentChange("afterRead", id);
    return { status: 200, body };
  }

  #connectionOf(project: Project, id: string): Connection | undefined {
    const connection = this.organization.connections.get(id.toLowerCase());
    return connection?.projects.some((one) => one.id === project.id) ? connection : undefined;
  }

  #putConnection(id: string, request: IncomingRequest): ServiceResponse {
    this.#runConcurrentChange("beforeWrite", id);
    const connection = this.organization.connections.get(id.toLowerCase());
    if (!connection) return missing("The service connection");
    if (connection.projects.some(({ id: one }) => this.organization.project(one)?.rights !== "manage")) return denied();
    const body = jsonObject(request) as unknown as Connection & { serviceEndpointProjectReferences?: unknown[] };
    if (body?.id !== connection.id || typeof body.authorization?.parameters !== "object") {
      return invalid("The service connection is not complete.");
    }
    if (!Array.isArray(body.serviceEndpointProjectReferences) || body.serviceEndpointProjectReferences.length === 0) {
      return invalid("serviceEndpointProjectReferences is missing.");
    }
    const secrets = Object.entries(body.authorization.parameters).filter(([name]) => MASKED.has(name.toLowerCase()));
    if (body.authorization.scheme !== connection.authorization.scheme)
      return invalid("The scheme of a service connection can't be changed by an update.");
    if (connection.data.creationMode === "Automatic" && secrets.some(([, value]) => value !== null)) {
      return invalid("A service connection that was created automatically takes no key.");
    }
    // A secret parameter without a value keeps the stored value.
    const secretParameters = secrets.map(([name, value]) => [
      name,
      value ?? parameter(connection, name.toLowerCase()) ?? null,
    ]);
    connection.name = body.name;
    connection.url = body.url;
    connection.data = body.data;
    connection.authorization = {
      scheme: body.authorization.scheme,
      parameters: { ...body.authorization.parameters, ...Object.fromEntries(secretParameters) },
    };
    const answer = connectionJson(connection);
    this.#runConcurrentChange("afterWrite", id);
    return { status: 200, body: answer };
  }

  /**
   * Converts a connection to workload identity federation, or back. Azure DevOps adds the federated credential only for a connection
   * that it created, and keeps the secret of such a connection for seven days.
   * https://learn.microsoft.com/azure/devops/pipelines/release/configure-workload-identity
   */
  #convertConnection(id: string, request: IncomingRequest): ServiceResponse {
    this.#runConcurrentChange("beforeWrite", id);
    const connection = this.organization.connections.get(id.toLowerCase());
    if (!connection) return missing("The service connection");
    if (connection.projects.some(({ id: one }) => this.organization.project(one)?.rights !== "manage")) return denied();
    const body = jsonObject(request) as unknown as Connection & { serviceEndpointProjectReferences?: unknown[] };
    const scheme = body?.authorization?.scheme;
    if (!Array.isArray(body?.serviceEndpointProjectReferences) || body.serviceEndpointProjectReferences.length === 0)
      return invalid("serviceEndpointProjectReferences is missing.");
    if (scheme === connection.authorization.scheme) return invalid(`The connection has the scheme ${scheme} already.`);
    if (connection.data.creationMode !== "Automatic")
      return invalid("Azure DevOps can't change the credentials of an application that it did not create.");
    if (scheme === "WorkloadIdentityFederation") this.federate(connection);
    else if (scheme === "ServicePrincipal") {
      const deadline = Date.parse(connection.data.revertSchemeDeadline ?? "");
      if (!(this.#parts.directory.clock.now() < deadline)) return invalid("The secret is kept for seven days only.");
      connection.authorization = { ...connection.authorization, scheme };
      delete connection.data.revertSchemeDeadline;
    } else return invalid(`The scheme ${scheme} is not supported.`);
    const answer = connectionJson(connection);
    this.#runConcurrentChange("afterWrite", id);
    return { status: 200, body: answer };
  }

  /**
   * Converts a connection as Azure DevOps does.
   * @param hasCredential - Whether the application already has the federated credential: a person adds it for a manual connection.
   */
  federate(connection: Connection, hasCredential = false): void {
    const { directory } = this.#parts;
    const claims = this.federationOf(connection);
    connection.authorization = {
      scheme: "WorkloadIdentityFederation",
      parameters: {
        ...connection.authorization.parameters,
        workloadIdentityFederationIssuer: claims.issuer,
        workloadIdentityFederationSubject: claims.subject,
      },
    };
    const deadline = new Date(directory.clock.now() + 7 * 86_400_000).toISOString();
    connection.data = { ...connection.data, revertSchemeDeadline: deadline };
    const application = directory.currentState(parameter(connection, "serviceprincipalid") ?? "");
    if (hasCredential || application === undefined) return;
    const others = application.federated.filter(({ name }) => name !== connection.id);
    const { issuer, subject } = claims;
    directory.put({ ...application, federated: [...others, { id: newKeyId(), name: connection.id, issuer, subject }] });
  }

  /** Returns the issuer and the subject that Azure DevOps shows for a connection. */
  federationOf({ name, projects }: Connection): { issuer: string; subject: string } {
    return {
      issuer: `https://vstoken.dev.azure.com/${guidFrom(this.organization.name)}`,
      subject: `sc://${this.organization.name}/${projects[0]!.name}/${name}`,
    };
  }

  /** Tests a connection as the portal does: signs in with the stored credential. */
  #testConnection(project: Project, request: IncomingRequest): ServiceResponse {
    const connection = this.#connectionOf(project, request.query.get("endpointId") ?? "");
    if (!connection) return missing("The service connection");
    const body = jsonObject(request) as { dataSourceDetails?: { dataSourceName?: string } } | undefined;
    if (body?.dataSourceDetails?.dataSourceName !== "TestConnection") return invalid("There is no such data source.");
    const appId = parameter(connection, "serviceprincipalid");
    const application = appId ? this.#parts.directory.currentState(appId) : undefined;
    // `accepted`, or an AADSTS code: 700016 is an unknown application.
    const outcome = application ? this.#signIn(connection, application) : 700016;
    const failedTest = {
      statusCode: "unauthorized",
      result: null,
      errorMessage: `Failed to obtain the Json Web Token(JWT) using service principal client ID. Exception message: AADSTS${outcome}: Invalid client secret provided.`,
    };
    const answer = outcome === "accepted" ? { statusCode: "ok", result: [], errorMessage: "" } : failedTest;
    return { status: 200, body: { ...answer, activityId: "5f1c1c62-26c7-4c4e-9d43-0a2f1b8a2f11" } };
  }

  #signIn(connection: Connection, application: ApplicationRecord) {
    const { directory } = this.#parts;
    if (connection.authorization.scheme !== "WorkloadIdentityFederation")
      return directory.signIn(application, parameter(connection, "serviceprincipalkey") ?? "");
    return directory.signInFederated(application, {
      issuer: parameter(connection, "workloadidentityfederationissuer") ?? "",
      subject: parameter(connection, "workloadidentityfederationsubject") ?? "",
      audience: DEFAULT_AUDIENCE,
    });
  }

  #runConcurrentChange(when: ConcurrentChangeTime, id: string): void {
    const scheduled = this.#concurrentChanges.find((one) => one.when === when && one.id === id);
    if (!scheduled) return;
    this.#concurrentChanges = this.#concurrentChanges.filter((one) => one !== scheduled);
    scheduled.change();
  }
}
