/** The rows of the list of credentials: client secrets of applications, pairs of keys of Azure resources, and database logins. */
import type { Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { isolated } from "../../parts/isolated.ts";
import { bothInUse, credentialTitle, LOGIN_KINDS, unfinished } from "../../parts/key-credential.ts";
import { rotationBlockers } from "../../parts/rotation-readiness.tsx";
import { FINAL_STATUSES } from "../../parts/rotation-texts.ts";

type KeyCredential = Schemas["RotationCredential"];
type Application = Schemas["Application"];
type Rotation = Schemas["RotationSummary"];

/** Kinds of resources with keys, and of database logins. */
export const KEY_KINDS = {
  storage: "Storage account",
  cosmos: "Cosmos DB account",
  serviceBus: "Service Bus namespace",
  serviceBusQueue: "Service Bus queue",
  serviceBusTopic: "Service Bus topic",
  eventHubs: "Event Hubs namespace",
  eventHub: "Event hub",
  redis: "Azure Cache for Redis",
  managedRedis: "Azure Managed Redis",
  aiServices: "AI services account",
  search: "AI Search service",
  signalr: "SignalR service",
  webPubSub: "Web PubSub service",
  maps: "Azure Maps account",
  eventGrid: "Event Grid topic",
  appConfiguration: "App Configuration store",
  batch: "Batch account",
  containerRegistry: "Container registry",
  iotHub: "IoT hub",
  ...LOGIN_KINDS,
} as const satisfies Record<KeyCredential["kind"], string>;

/**
 * State of a credential's rotation. `match`: the application's page says which vault secrets may store it. `superseded`: the client
 * secret has expired, and the application has one that is valid.
 */
const STATES = {
  ready: "Ready",
  match: "Confirm which vault secret stores it, then rotate",
  superseded: "Delete it if it is unused: the application has a valid secret",
  inProgress: "In progress",
  blocked: "Not possible",
} as const;

export interface Row {
  id: string;
  name: string;
  /** Address of the credential's page. */
  href: string;
  kind: string;
  /** The application or the resource, with the address of its page if it has one. */
  holder: { name: string; href?: string };
  /** Vault secrets that store it. Undefined for a client secret, whose matches are on the application's page. */
  places: { name: string; href: string }[] | undefined;
  expiresOn: string | null;
  /** When the vault secrets were last compared with the keys. Undefined for a client secret. */
  comparedAt?: string | undefined;
  state: keyof typeof STATES;
  /** Why no rotation is possible, and what to do. */
  blockers: string;
  /** The latest rotation in the loaded part of the history. */
  rotation: Rotation | undefined;
}

export const stateText = ({ state }: Row): string => STATES[state];

export const isInProgress = ({ status }: Rotation): boolean => !FINAL_STATUSES.includes(status);

/**
 * Returns the row of a pair of keys, or of a database login.
 *
 * @param history - Rotations, newest first.
 */
export function rowOfKeys(credential: KeyCredential, history: readonly Rotation[]): Row {
  const { credentialId, issuer, kind, resourceId, resourceName, resourceGroup, keys, keyInUse, places, expiresOn } =
    credential;
  // Azure returns the ID of a resource in different cases.
  const ofResource = history.filter(({ resourceId: id }) => id?.toLowerCase() === resourceId.toLowerCase());
  // A resource or a server can have several pairs.
  const ofPair = ofResource.filter(({ oldKeyId }) => oldKeyId !== null && keys.includes(oldKeyId));
  // A resource has at most one running rotation of its keys. Logins of a server don't block each other.
  const [state, blockers] = (issuer === "databaseLogin" ? ofPair : ofResource).some(isInProgress)
    ? (["inProgress", unfinished(credential) ?? ""] as const)
    : keyInUse === null
      ? (["blocked", bothInUse(credential) ?? ""] as const)
      : (["ready", ""] as const);
  return {
    id: credentialId,
    name: credentialTitle(credential),
    href: createHref(`/credentials/${credentialId}`),
    kind: KEY_KINDS[kind],
    holder: { name: `${isolated(resourceName)} in ${isolated(resourceGroup)}` },
    places: places.map(({ assetId }) => ({
      name: titleOfId(assetId),
      href: createHref(`/inventory/${encodeURIComponent(assetId)}`),
    })),
    expiresOn,
    comparedAt: places
      .map(({ comparedAt }) => comparedAt)
      .sort()
      .at(-1),
    state,
    blockers,
    rotation: ofPair[0],
  };
}

/**
 * Returns the rows of an application's client secrets.
 *
 * @param history - Rotations, newest first.
 */
export function rowsOfApplication(application: Application, history: readonly Rotation[]): Row[] {
  const { appId, displayName, kind, credentials } = application;
  const blockers = rotationBlockers(application)
    .map(({ message }) => message)
    .join(" ");
  const secrets = credentials.filter((credential) => credential.kind === "secret");
  const hasValid = secrets.some(({ status }) => status !== "expired");
  return secrets.map(({ assetId, keyId, displayName: secretName, expiresOn, status }) => ({
    id: assetId,
    name: [displayName, secretName ?? keyId].map(isolated).join("/"),
    href: createHref(`/inventory/${encodeURIComponent(assetId)}`),
    kind: "Client secret",
    holder: {
      name: isolated(displayName),
      // The application of a service principal is registered in another tenant and has no page here.
      ...(kind === "application" && { href: createHref(`/rotation/apps/${appId}`) }),
    },
    places: undefined,
    expiresOn,
    state: hasValid && status === "expired" ? "superseded" : blockers === "" ? "match" : "blocked",
    blockers,
    // The rotation that replaces this secret or created it.
    rotation: history.find(({ oldKeyId, newKeyId }) => oldKeyId === keyId || newKeyId === keyId),
  }));
}

/** Orders of the list, each by a text of the row. */
export const ORDERS = {
  // Credentials that never expire come last.
  expires: (row: Row) => row.expiresOn ?? "9999",
  name: (row: Row) => row.name.toLowerCase(),
  kind: (row: Row) => row.kind.toLowerCase(),
} as const satisfies Record<string, (row: Row) => string>;
export type Order = keyof typeof ORDERS;

/** Returns the rows in an order, those with the same text by name. */
export function sorted(rows: readonly Row[], order: Order): Row[] {
  const keyOf = (row: Row) => `${ORDERS[order](row)}\n${ORDERS.name(row)}\n${row.id}`;
  return [...rows].sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1));
}
