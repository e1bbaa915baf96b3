import { systemRandomness } from "../runtime.ts";
import { CALL_LIMITS, type CallLimits, createSender, type SentRequest } from "./calls.ts";
import { CloudFailure, unlessMissing } from "./failure.ts";
import {
  type GraphPage,
  graphPage,
  graphRoute,
  passwordPolicyOf,
  readApplication,
  readChanges,
  readFederated,
  readId,
  readIdentityProvider,
  readKeySet,
  readNewPassword,
  readOrganization,
  readOwner,
  readPermissions,
  readServicePrincipal,
} from "./graph-answers.ts";
import { graphFailure } from "./graph-failures.ts";
import type {
  ApplicationChanges,
  DirectoryOwner,
  FederatedCredential,
  GraphApplication,
  IdentityProvider,
  KeySet,
  NewPassword,
  Organization,
  PasswordPolicy,
} from "./graph-objects.ts";
import type { Identity } from "./identity.ts";
import type { CloudServices } from "./key-vault.ts";

export type {
  FederatedCredential,
  GraphApplication,
  IdentityProvider,
  KeySet,
  Organization,
  PasswordCredential,
} from "./graph-objects.ts";

/**
 * Client of Microsoft Graph for applications and their credentials. The methods throw `CloudFailure`, with the code `timedOut`
 * when their signal is aborted.
 */
export interface Graph {
  /** Lists all applications with their credentials and owners, in pages of up to 999. */
  applications(signal?: AbortSignal): AsyncGenerator<GraphApplication[]>;
  /** Checks that the identity may list applications, by listing one. @throws {CloudFailure} accessDenied if it may not. */
  checkApplicationAccess(signal?: AbortSignal): Promise<void>;
  /** Lists the service principals that have their own credentials. */
  servicePrincipals(signal?: AbortSignal): AsyncGenerator<GraphApplication[]>;
  /**
   * Lists the changes since `link`. Without a link, returns one empty page with a link that starts now.
   *
   * @throws {CloudFailure} resyncRequired if the link has expired: list everything again.
   */
  changes(link: string | undefined, signal?: AbortSignal): AsyncGenerator<ApplicationChanges>;
  /** Reads an application with its credentials and owners. Returns undefined if the application does not exist. */
  findApplication(
    by: { objectId: string } | { appId: string },
    signal?: AbortSignal,
  ): Promise<GraphApplication | undefined>;
  owners(objectId: string, signal?: AbortSignal): Promise<DirectoryOwner[]>;
  federatedCredentials(objectId: string, signal?: AbortSignal): Promise<FederatedCredential[]>;
  /**
   * Adds a federated credential, or updates the one of this name. So a repeat after a lost response adds no second one.
   * https://learn.microsoft.com/graph/api/federatedidentitycredential-upsert
   *
   * @throws {CloudFailure} if the application has another one with this issuer and subject, or the maximum number.
   */
  putFederatedCredential(objectId: string, credential: Omit<FederatedCredential, "id">): Promise<void>;
  /** Removes a federated credential by its ID. */
  removeFederatedCredential(objectId: string, id: string): Promise<"removed" | "absent">;
  /**
   * Lists the object IDs of all applications with federated credentials. Azure AD B2C does not support this query:
   * https://learn.microsoft.com/graph/aad-advanced-queries
   */
  federatedApplications(signal?: AbortSignal): AsyncGenerator<string[]>;
  /**
   * Returns the limits that policies of the tenant and the application set for new client secrets, or `unknown` if the service
   * may not read the policies.
   */
  passwordPolicy(objectId: string, signal?: AbortSignal): Promise<PasswordPolicy | "unknown">;
  /**
   * Adds a client secret. Not idempotent: retried only after a response that says that nothing was applied (`concurrency`,
   * `throttled`). After an `unclear` failure the caller must search for the display name. For some minutes, reads can miss a
   * new secret.
   *
   * @throws {CloudFailure} noRoomForSecret, lifetimePolicy or typePolicy if it is rejected for good.
   */
  addPassword(objectId: string, secret: { displayName: string; expiresOn: number }): Promise<NewPassword>;
  /**
   * Removes one client secret. Returns `absent` if Microsoft Graph does not find the secret. This can also happen for a secret
   * that was added in the last minutes.
   */
  removePassword(objectId: string, keyId: string): Promise<"removed" | "absent">;
  /** Returns the tenant, or undefined if the answer has none. */
  organization(signal?: AbortSignal): Promise<Organization | undefined>;
  /** Lists the identity providers of the tenant, page by page. */
  identityProviders(signal?: AbortSignal): AsyncGenerator<IdentityProvider[]>;
  /**
   * Lists the keys of Azure AD B2C custom policies, page by page, without their secret parts. Only a beta version of this API
   * exists.
   *
   * @throws {CloudFailure} notFound if the tenant is not an Azure AD B2C tenant.
   */
  keySets(signal?: AbortSignal): AsyncGenerator<KeySet[]>;
  /** Returns the service's identity and the application permissions of its token. */
  grantedPermissions(): Promise<{ objectId: string | undefined; permissions: string[] }>;
}

/** Applications per page, the maximum: https://learn.microsoft.com/graph/api/application-list */
const PER_PAGE = 999;

const CREDENTIALS = "passwordCredentials,keyCredentials";
const APPLICATION = `id,appId,displayName,signInAudience,createdDateTime,${CREDENTIALS}`;
const OWNER = "id,displayName,userPrincipalName,mail";

/**
 * Maximum total wait of one write between its attempts. Writes are rejected while another write in the tenant is in progress.
 */
const WRITE_WAIT_MS = 90_000;

/** Creates a client that uses the service's own identity, or the identity of an application in another tenant. */
export function createGraph({
  config,
  identity,
  log,
  randomness = systemRandomness(),
  limits,
}: Omit<CloudServices, "identity"> & { identity: Pick<Identity, "credential"> }): Graph {
  const endpoint = config.cloud.graph;
  const scope = `${endpoint}/.default`;
  const base = `${endpoint}/v1.0`;

  /** Creates a sender for the pages of one list, or for a single call. */
  async function sender(signal?: AbortSignal, limitOverrides: Partial<CallLimits> = {}) {
    const send = await createSender(
      {
        origin: new URL(endpoint).origin,
        scope,
        identity,
        route: graphRoute,
        resource: "Microsoft Graph",
        signal,
        failureOf: graphFailure,
        log,
        randomness,
        limits: { ...CALL_LIMITS, ...limits, ...limitOverrides },
      },
      "client-request-id",
    );
    return (url: string, body?: object, method: SentRequest["method"] = body ? "POST" : "GET"): Promise<unknown> => {
      // Queries with `$count` need this header. It allows results from an index that can be slightly outdated.
      const headers: Record<string, string> = {
        ...(new URL(url).searchParams.has("$count") && { ConsistencyLevel: "eventual" }),
        // Without this header, the request only updates an existing object.
        ...(method === "PATCH" && { Prefer: "create-if-missing" }),
      };
      return send({ method, url, body, headers });
    };
  }

  /** Returns the entries of a list, page by page, and the delta link of the last page. */
  async function* pages(first: string, signal?: AbortSignal) {
    const send = await sender(signal);
    for (let next: string | undefined = first; next; ) {
      const answer: GraphPage = graphPage.parse(await send(next));
      yield { value: answer.value, deltaLink: answer["@odata.deltaLink"] };
      next = answer["@odata.nextLink"];
    }
  }

  async function collectEntries<T>(first: string, read: (entry: unknown) => T, signal?: AbortSignal): Promise<T[]> {
    const entries: T[] = [];
    for await (const { value } of pages(first, signal)) entries.push(...value.map(read));
    return entries;
  }

  const applicationUrl = (objectId: string) => `${base}/applications/${encodeURIComponent(objectId)}`;

  return {
    async *applications(signal) {
      const owners = `owners($select=${OWNER})`;
      for await (const { value } of pages(
        `${base}/applications?$select=${APPLICATION}&$expand=${owners}&$top=${PER_PAGE}`,
        signal,
      )) {
        yield value.map(readApplication);
      }
    },

    async checkApplicationAccess(signal) {
      await (await sender(signal))(`${base}/applications?$select=id&$top=1`);
    },

    async *servicePrincipals(signal) {
      const select = `id,appId,displayName,${CREDENTIALS}`;
      for await (const { value } of pages(`${base}/servicePrincipals?$select=${select}&$top=${PER_PAGE}`, signal)) {
        yield value.map(readServicePrincipal).filter(({ passwords, keys }) => passwords.length + keys.length > 0);
      }
    },

    async *changes(link, signal) {
      const first = link ?? `${base}/applications/delta?$select=${APPLICATION}&$deltatoken=latest`;
      for await (const { value, deltaLink } of pages(first, signal)) {
        yield { ...readChanges(value), ...(deltaLink !== undefined && { deltaLink }) };
      }
    },

    async findApplication(by, signal) {
      const address =
        "objectId" in by
          ? applicationUrl(by.objectId)
          : `${base}/applications(appId='${encodeURIComponent(by.appId.toLowerCase())}')`;
      const expand = `$expand=owners($select=${OWNER})`;
      const answer = await unlessMissing((await sender(signal))(`${address}?$select=${APPLICATION}&${expand}`));
      return answer === undefined ? undefined : readApplication(answer);
    },

    async owners(objectId, signal) {
      return collectEntries(`${applicationUrl(objectId)}/owners?$select=${OWNER}&$top=${PER_PAGE}`, readOwner, signal);
    },

    async federatedCredentials(objectId, signal) {
      return collectEntries(`${applicationUrl(objectId)}/federatedIdentityCredentials`, readFederated, signal);
    },

    async putFederatedCredential(objectId, { name, ...credential }) {
      const send = await sender(undefined, { totalWaitMs: WRITE_WAIT_MS });
      const url = `${applicationUrl(objectId)}/federatedIdentityCredentials(name='${encodeURIComponent(name)}')`;
      await send(url, credential, "PATCH");
    },

    async removeFederatedCredential(objectId, id) {
      const send = await sender(undefined, { totalWaitMs: WRITE_WAIT_MS });
      const url = `${applicationUrl(objectId)}/federatedIdentityCredentials/${encodeURIComponent(id)}`;
      const removed = await unlessMissing(send(url, undefined, "DELETE").then(() => "removed" as const));
      return removed ?? "absent";
    },

    async *federatedApplications(signal) {
      const query = `$filter=federatedIdentityCredentials/$count ne 0&$count=true&$select=id&$top=${PER_PAGE}`;
      const first = encodeURI(`${base}/applications?${query}`);
      for await (const { value } of pages(first, signal)) yield value.map(readId);
    },

    async passwordPolicy(objectId, signal) {
      const send = await sender(signal);
      try {
        const application = await send(
          `${applicationUrl(objectId)}?$select=id,createdDateTime&$expand=appManagementPolicies`,
        );
        return passwordPolicyOf(application, await send(`${base}/policies/defaultAppManagementPolicy`));
      } catch (error) {
        if (error instanceof CloudFailure && error.code === "accessDenied") return "unknown";
        throw error;
      }
    },

    async addPassword(objectId, { displayName, expiresOn }) {
      // A retry after a request without a response could add a second secret.
      const send = await sender(undefined, { unreachableTries: 1, totalWaitMs: WRITE_WAIT_MS });
      const endDateTime = new Date(expiresOn * 1000).toISOString();
      return readNewPassword(
        await send(`${applicationUrl(objectId)}/addPassword`, { passwordCredential: { displayName, endDateTime } }),
      );
    },

    async removePassword(objectId, keyId) {
      const send = await sender(undefined, { totalWaitMs: WRITE_WAIT_MS });
      try {
        await send(`${applicationUrl(objectId)}/removePassword`, { keyId });
        return "removed";
      } catch (error) {
        if (error instanceof CloudFailure && error.code === "notFound") return "absent";
        throw error;
      }
    },

    async organization(signal) {
      const select = "id,displayName,tenantType,verifiedDomains";
      return (await collectEntries(`${base}/organization?$select=${select}`, readOrganization, signal))[0];
    },

    async *identityProviders(signal) {
      for await (const { value } of pages(`${base}/identity/identityProviders`, signal)) {
        yield value.map(readIdentityProvider);
      }
    },

    async *keySets(signal) {
      for await (const { value } of pages(`${endpoint}/beta/trustFramework/keySets`, signal))
        yield value.map(readKeySet);
    },

    async grantedPermissions() {
      const token = await (await identity.credential()).getToken(scope);
      return readPermissions(token?.token ?? "");
    },
  };
}
