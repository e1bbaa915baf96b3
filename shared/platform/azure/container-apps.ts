import * as z from "zod";
import type { Arm, ArmCall } from "./arm.ts";
import { resourceName, resourcePath } from "./resource-id.ts";
import { DEPENDENCY_READER } from "./watch-roles.ts";

/** A secret of a container app or job, without its value. */
export interface ContainerAppSecret {
  name: string;
  /** Address of the key vault secret. Undefined if the value was entered directly. */
  keyVaultUrl?: string;
}

/** A secret whose value was entered directly in the app, with that value. Do not store or log the value. */
export interface InlineSecret {
  name: string;
  value: string;
}

export interface ContainerApp {
  id: string;
  name: string;
  /** `Running`, `Stopped` … Undefined if the answer has no status. */
  runningStatus?: string;
  /** `Succeeded`, `InProgress`, `Failed` … */
  provisioningState?: string;
  secrets: ContainerAppSecret[];
}

export interface Revision {
  name: string;
  active: boolean;
  /** ISO 8601. */
  createdOn?: string;
  replicas?: number;
  /** `Running`, `RunningAtMaxScale`, `Processing`, `Stopped`, `Degraded`, `Failed` … */
  runningState?: string;
  /** `Healthy`, `Unhealthy` or `None`. */
  healthState?: string;
}

/** One replica of a revision. */
export interface Replica {
  name: string;
  /** ISO 8601. */
  createdOn?: string;
}

/**
 * Container apps and jobs, by resource id. Every method throws `CloudFailure`.
 * https://learn.microsoft.com/rest/api/resource-manager/containerapps
 */
export interface ContainerApps {
  /** Returns an app or a job. */
  app(id: string, signal?: AbortSignal): Promise<ContainerApp>;
  /** Returns the secrets of an app or job that do not come from a key vault. */
  inlineSecrets(id: string, signal?: AbortSignal): Promise<InlineSecret[]>;
  activeRevisions(appId: string, signal?: AbortSignal): Promise<Revision[]>;
  revision(appId: string, name: string, signal?: AbortSignal): Promise<Revision>;
  /** Returns the replicas of one revision. Replicas newer than a restart prove the restart. */
  replicas(appId: string, revision: string, signal?: AbortSignal): Promise<Replica[]>;
}

const API_VERSION = "2025-07-01";

const APP = "microsoft.app/containerapps";
const JOB = "microsoft.app/jobs";

/** https://learn.microsoft.com/azure/container-apps/revisions#revision-name-suffix */
const REVISION = /^[A-Za-z0-9-]{1,90}$/;

/** Completes "Give the service's identity …" in the remedy of a failure. */
const LISTER = "a role on the container app that may list its secrets, such as Credential Lifecycle Literal Scanner";

const text = z.string().nullish();
const appAnswer = z.object({
  id: z.string(),
  name: z.string(),
  properties: z.object({
    runningStatus: text,
    provisioningState: text,
    configuration: z
      .object({ secrets: z.array(z.object({ name: z.string(), keyVaultUrl: text })).nullish() })
      .nullish(),
  }),
});
const secretsAnswer = z.object({
  value: z.array(z.object({ name: z.string(), value: text, keyVaultUrl: text })),
});
const revisionAnswer = z.object({
  name: z.string().regex(REVISION),
  properties: z.object({
    active: z.boolean().nullish(),
    createdTime: text,
    replicas: z.int().nullish(),
    runningState: text,
    healthState: text,
  }),
});
const replicasAnswer = z.object({
  value: z.array(z.object({ name: z.string(), properties: z.object({ createdTime: text }).nullish() })),
});

export function createContainerApps(arm: Arm): ContainerApps {
  /** `below` is the path after that of the resource. `grant` is what the remedy names if the call is denied. */
  const call = (
    id: string,
    types: [string, ...string[]],
    below: string,
    operation: string,
    grant: string,
  ): ArmCall => ({
    path: `${resourcePath(id, ...types)}${below}`,
    apiVersion: API_VERSION,
    target: { operation, resource: `container app ${resourceName(id)}`, grant },
  });

  return {
    async app(id, signal) {
      const request = call(id, [APP, JOB], "", "read the container app", DEPENDENCY_READER);
      const { name, properties } = await arm.call({ ...request, signal }, appAnswer);
      return {
        id,
        name,
        ...(properties.runningStatus && { runningStatus: properties.runningStatus }),
        ...(properties.provisioningState && { provisioningState: properties.provisioningState }),
        secrets: (properties.configuration?.secrets ?? []).map(({ name, keyVaultUrl }) => ({
          name,
          ...(keyVaultUrl && { keyVaultUrl }),
        })),
      };
    },

    async inlineSecrets(id, signal) {
      const request = call(id, [APP, JOB], "/listSecrets", "read the secrets", LISTER);
      const { value: secrets } = await arm.call({ ...request, method: "POST", signal }, secretsAnswer);
      return secrets.flatMap(({ name, value, keyVaultUrl }) => (value && !keyVaultUrl ? [{ name, value }] : []));
    },

    async activeRevisions(appId, signal) {
      const request = call(appId, [APP], "/revisions", "list the revisions", DEPENDENCY_READER);
      const { entries, unreadable } = await arm.list({ ...request, signal }, revisionAnswer);
      if (unreadable[0]) throw unreadable[0];
      return entries.map(revisionOf).filter(({ active }) => active);
    },

    async revision(appId, name, signal) {
      const request = call(appId, [APP], revisionPath(name), "read the revision", DEPENDENCY_READER);
      return revisionOf(await arm.call({ ...request, signal }, revisionAnswer));
    },

    async replicas(appId, revision, signal) {
      const request = call(appId, [APP], `${revisionPath(revision)}/replicas`, "list the replicas", DEPENDENCY_READER);
      const { value } = await arm.call({ ...request, signal }, replicasAnswer);
      return value.map(({ name, properties }) => ({
        name,
        ...(properties?.createdTime && { createdOn: properties.createdTime }),
      }));
    },
  };
}

/** Returns the path of a revision below its app. @throws {TypeError} if the text is not the name of a revision. */
function revisionPath(revision: string): string {
  if (!REVISION.test(revision)) throw new TypeError("Not the name of a revision.");
  return `/revisions/${revision}`;
}

const revisionOf = ({ name, properties }: z.infer<typeof revisionAnswer>): Revision => ({
  name,
  active: properties.active ?? false,
  ...(properties.createdTime && { createdOn: properties.createdTime }),
  ...(properties.replicas != null && { replicas: properties.replicas }),
  ...(properties.runningState && { runningState: properties.runningState }),
  ...(properties.healthState && { healthState: properties.healthState }),
});
