import { Badge, Link, Text } from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { historyFilter } from "../../parts/key-credential.ts";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { FINAL_STATUSES, statusTextOf } from "../../parts/rotation-texts.ts";
import { RotationTimeline } from "../../parts/rotation-timeline.tsx";
import { useStoredKey } from "./stored-key.ts";

type Rotation = Schemas["Rotation"];

/** Number of recent rotations of an application that are searched for the client secret. */
const SEARCHED_ROTATIONS = 50;

interface Props {
  assetId: string;
  /** ID of the rotation that the user has just started. Undefined: the latest one. */
  startedRotationId: string | undefined;
}

/** The card of an asset's page with the steps of its latest rotation. Null if the asset was never rotated. */
export function LatestRotation({ assetId, startedRotationId }: Props) {
  const may = useMay();
  if (!may("listRotations") || !may("getRotation") || !may("listRotationCredentials")) return null;
  return startedRotationId === undefined ? (
    <Found assetId={assetId} />
  ) : (
    <Steps rotationId={startedRotationId} assetId={assetId} />
  );
}

/** Returns the client ID and the key ID of an application's credential, by the ID of the asset. Undefined for other assets. */
function clientSecretOf(assetId: string): { appId: string; keyId: string } | undefined {
  const [source, , appId, keyId] = assetId.split(".");
  return source === "entra" && appId !== undefined && keyId !== undefined ? { appId, keyId } : undefined;
}

/**
 * The latest rotation of the asset. For a client secret, the latest rotation that replaced or created it. For a vault secret that
 * stores a key of an Azure resource or a database login, the latest rotation of that resource or login.
 */
function Found({ assetId }: Pick<Props, "assetId">) {
  const clientSecret = clientSecretOf(assetId);
  const { credential, isPending } = useStoredKey(assetId);
  const filter = clientSecret
    ? { appId: clientSecret.appId, limit: SEARCHED_ROTATIONS }
    : credential
      ? { ...historyFilter(credential), limit: 1 }
      : { assetId, limit: 1 };
  const history = api.useQuery(
    "get",
    "/api/automation/rotation/history",
    { params: { query: filter } },
    { enabled: !isPending },
  );
  const latest = history.data?.items.find(
    ({ oldKeyId, newKeyId }) => !clientSecret || oldKeyId === clientSecret.keyId || newKeyId === clientSecret.keyId,
  );
  if (latest?.rotationId == null) return null;
  return <Steps rotationId={latest.rotationId} assetId={assetId} />;
}

/** The result and the steps of one rotation. Refreshes the rest of the page when the rotation has changed the asset. */
function Steps({ rotationId, assetId }: Pick<Props, "assetId"> & { rotationId: string }) {
  const queries = useQueryClient();
  const rotation = api.useQuery(
    "get",
    "/api/automation/rotation/rotations/{rotation_id}",
    { params: { path: { rotation_id: rotationId } } },
    pollUntil<Rotation>(({ status }) => FINAL_STATUSES.includes(status)),
  );
  const status = rotation.data?.status;
  const previousStatus = useRef(status);
  // The rotation changes the asset while this page is open: its expiry date, its versions and its violations.
  useEffect(() => {
    const hasChanged = previousStatus.current !== undefined && previousStatus.current !== status;
    previousStatus.current = status;
    if (hasChanged && (status === "overlapping" || status === "completed"))
      void queries.invalidateQueries({
        // The only other query about rotations that changes is the key in use. This rotation is polled anyway.
        predicate: ({ queryKey: [, path] }) =>
          !String(path).includes("/rotation/") || String(path).includes("/rotation/credentials"),
      });
  }, [status, queries]);
  return (
    <Card title="Rotation">
      <QueryResult of={rotation}>
        {(data) => (
          <>
            <Text>
              <Outcome rotation={data} assetId={assetId} />
            </Text>
            <RotationTimeline of={data} />
            <Link href={createHref(`/rotation/${rotationId}`)}>
              {data.status === "needsAttention" ? "Decide how the rotation continues" : "Details of the rotation"}
            </Link>
          </>
        )}
      </QueryResult>
    </Card>
  );
}

/**
 * The result of the rotation so far. "Resolved" is shown as soon as consumers use the new value, even while the old value is
 * still valid.
 */
function Outcome({ rotation, assetId }: { rotation: Rotation; assetId: string }) {
  const { status, newKeyId, expiresAt, overlapEndsAt, failure, attention, keyKind } = rotation;
  if (status !== "completed" && status !== "overlapping")
    return (
      <>
        {statusTextOf(rotation)}. {failure && `${failure.message} ${failure.remedy}`}
        {attention && `${attention.message} ${attention.next}`}
      </>
    );
  const clientSecret = clientSecretOf(assetId);
  const isReplaced = clientSecret !== undefined && newKeyId !== null && newKeyId !== clientSecret.keyId;
  return (
    <>
      <Badge color="success">Resolved</Badge>{" "}
      {isReplaced ? "A new secret replaces this one" : "The new value is in use"}
      {expiresAt && (
        <>
          {keyKind === null ? " and is valid until " : ", in a version that expires "}
          <Instant at={expiresAt} />
        </>
      )}
      . {keyKind !== null && oldKeyText(rotation)}
      {keyKind === null && status === "overlapping" && overlapEndsAt && (
        <>
          The old one stays valid until <Instant at={overlapEndsAt} /> and is then deleted.{" "}
        </>
      )}
      {isReplaced && (
        <Link href={createHref(`/inventory/${encodeURIComponent(siblingId(assetId, newKeyId))}`)}>
          Show the new secret{rotation.appName === null ? "" : ` of ${isolated(rotation.appName)}`}
        </Link>
      )}
    </>
  );
}

/** Returns what happens, or happened, to the old key of an Azure resource, or to the old user of a database. */
const oldKeyText = ({ steps, plan }: Rotation): string | undefined =>
  steps.find(({ name }) => name === "revoke")?.result ?? plan.find(({ step }) => step === "revoke")?.text;

/** Returns the ID of another credential of the same application. */
const siblingId = (assetId: string, keyId: string): string => [...assetId.split(".").slice(0, 3), keyId].join(".");
