import { jsonObject, type ServiceResponse } from "../http.ts";
import { type AppSecret, type Revision, secretsOf } from "./container-apps.ts";
import { failure, type Route } from "./request-context.ts";
import { malformed, type ResourceCall, resourceRoute } from "./resource-route.ts";
import type { ArmResource, Properties } from "./resource-store.ts";

/**
 * Returns the route of a request to a container app or job. Undefined for requests that are not simulated:
 * https://learn.microsoft.com/rest/api/containerapps/container-apps
 */
export function appRoute(call: ResourceCall): Route | undefined {
  const { request, rest, type, options } = call;
  const { versions } = type;
  const apps = options.consumers.containerApps;
  const method = `${request.method} ${rest}`;
  if (method === "GET ") {
    // `self`: the app itself is readable even if access to it is `denied`. Only its revisions and secrets are then denied.
    return resourceRoute(
      call,
      { name: `arm.get${type.noun}`, versions, action: `${type.type}/read`, self: true },
      (app) => ({
        status: 200,
        body: appResource(call, app),
      }),
    );
  }
  if (method === "PATCH ") {
    const route = { name: `arm.update${type.noun}`, versions, action: `${type.type}/write` };
    return resourceRoute(call, route, (app) => update(call, app));
  }
  if (method === "POST listsecrets") {
    const route = { name: `arm.list${type.noun}Secrets`, versions, action: `${type.type}/listSecrets/action` };
    return resourceRoute(call, route, (app) => {
      const value = secretsOf(app).map((one) => ({ ...one, value: apps.valueOf(app, one) }));
      return { status: 200, body: { value } };
    });
  }
  if (type.noun !== "ContainerApp") return undefined;
  if (method === "GET revisions") {
    return resourceRoute(
      call,
      { name: "arm.listRevisions", versions, action: `${type.type}/revisions/read` },
      (app) => ({
        status: 200,
        body: { value: apps.revisions(app).map((one) => revisionResource(app, one)) },
      }),
    );
  }
  const [, name, part] = /^revisions\/([^/]+)(?:\/(replicas))?$/.exec(rest) ?? [];
  if (name === undefined) return undefined;
  const inRevision = (
    operation: string,
    action: string,
    respond: (app: ArmResource, revision: Revision) => ServiceResponse,
  ) =>
    resourceRoute(call, { name: operation, versions, action, item: name }, (app) => {
      const revision = apps.revisions(app).find((one) => one.name.toLowerCase() === name);
      return revision === undefined
        ? failure(404, "RevisionNotFound", `The revision '${name}' was not found.`)
        : respond(app, revision);
    });
  if (request.method === "GET" && part === "replicas") {
    return inRevision("arm.listReplicas", `${type.type}/revisions/replicas/read`, (app, revision) => ({
      status: 200,
      body: { value: [replicaResource(app, revision)] },
    }));
  }
  if (request.method !== "GET" || part !== undefined) return undefined;
  return inRevision("arm.getRevision", `${type.type}/revisions/read`, (app, revision) => ({
    status: 200,
    body: revisionResource(app, revision),
  }));
}

/** Returns a container app in the form of the REST API. */
export function appResource({ options }: Pick<ResourceCall, "options">, app: ArmResource): Properties {
  const body = options.store.toArmBody(app);
  const latest = options.consumers.containerApps.revisions(app).findLast((one) => one.active)?.name;
  if (latest === undefined) return body;
  const revisionFields = { latestRevisionName: latest, latestReadyRevisionName: latest, runningStatus: "Running" };
  return { ...body, properties: { ...(body.properties as Properties), ...revisionFields } };
}

/** Replaces all secrets of the app with the secrets in the body. Each needs a value or a vault address. */
function update(call: ResourceCall, app: ArmResource): ServiceResponse {
  const body = jsonObject(call.request);
  const { configuration, template } = (body?.properties ?? {}) as {
    configuration?: { secrets?: AppSecret[] };
    template?: Properties;
  };
  if (body === undefined) return malformed("The body is not a JSON object.");
  const secrets = configuration?.secrets ?? secretsOf(app);
  for (const { name, value, keyVaultUrl } of secrets) {
    if (typeof value !== "string" && typeof keyVaultUrl !== "string") {
      return failure(
        400,
        "ContainerAppSecretInvalid",
        `Container app secret(s) with name(s) '${name}' are invalid: value or keyVaultUrl and identity should be provided.`,
      );
    }
  }
  const names = new Set(secrets.map(({ name }) => name));
  for (const { secretRef, container } of secretRefs(template ?? app.properties.template)) {
    if (!names.has(secretRef)) {
      return failure(
        400,
        "ContainerAppSecretRefNotFound",
        `SecretRef '${secretRef}' defined for container '${container}' not found.`,
      );
    }
  }
  const problem = call.options.consumers.containerApps.replace(app, secrets, template);
  if (problem !== undefined) return failure(400, "InvalidParameterValueInContainerTemplate", problem);
  const [version, namespace] = [call.request.query.get("api-version")!, call.type.type.split("/")[0]!];
  const operation = { subscription: call.subscription, namespace, version, name: app.name };
  return call.options.operations.start(call.options, operation, () => ({ status: 200, body: appResource(call, app) }));
}

/** Returns the secrets that the environment variables of a template refer to. */
function secretRefs(template: unknown): { secretRef: string; container: string }[] {
  const { containers = [] } = (template ?? {}) as {
    containers?: { name: string; env?: { secretRef?: string }[] }[];
  };
  return containers.flatMap(({ name, env = [] }) =>
    env.flatMap(({ secretRef }) => (secretRef === undefined ? [] : [{ secretRef, container: name }])),
  );
}

function revisionResource(app: ArmResource, { name, active, createdAt }: Revision): Properties {
  return {
    id: `${app.id}/revisions/${name}`,
    name,
    type: "Microsoft.App/containerapps/revisions",
    properties: {
      createdTime: new Date(createdAt).toISOString(),
      active,
      replicas: active ? 1 : 0,
      trafficWeight: active ? 100 : 0,
      healthState: "Healthy",
      provisioningState: "Provisioned",
      runningState: active ? "Running" : "Stopped",
      template: app.properties.template ?? {},
    },
  };
}

function replicaResource(app: ArmResource, { name, startedAt }: Revision): Properties {
  const replica = `${name}-${Math.floor(startedAt).toString(36)}`;
  return {
    id: `${app.id}/revisions/${name}/replicas/${replica}`,
    name: replica,
    type: "Microsoft.App/containerapps/revisions/replicas",
    properties: {
      createdTime: new Date(startedAt).toISOString(),
      runningState: "Running",
      containers: [],
    },
  };
}
