import { Link, MessageBar, MessageBarBody, MessageBarTitle, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { Card } from "../../parts/card.tsx";
import { evidenceText, kindOf } from "../../parts/dependency-texts.ts";
import { CheckField } from "../../parts/fields.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { textsOfKind } from "../../parts/key-credential.ts";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { Lines, NotSearched, NotWritten, possibleCopies } from "../../parts/rotation-plan.tsx";
import {
  CONSUMER_STATES,
  FINAL_STATUSES,
  resourceName,
  statusTextOf,
  subjectOf,
  TARGET_STATES,
  VERIFICATION_RESULTS,
} from "../../parts/rotation-texts.ts";
import { RotationTimeline } from "../../parts/rotation-timeline.tsx";
import { useParams } from "../../parts/router.tsx";
import { useWhyNot } from "../../parts/unavailable.tsx";
import { View } from "../../parts/view.tsx";

type Rotation = Schemas["Rotation"];

/** The page of one rotation: its steps with their progress, the affected resources, and the actions of the user. */
export default function OneRotation() {
  const { rotationId = "" } = useParams();
  const rotation = api.useQuery(
    "get",
    "/api/automation/rotation/rotations/{rotation_id}",
    { params: { path: { rotation_id: rotationId } } },
    pollUntil<Rotation>(({ status }) => FINAL_STATUSES.includes(status)),
  );
  return (
    <QueryResult of={rotation}>
      {(data) => (
        <View title={`Rotation of ${data.appName === null ? "" : "a client secret of "}${subjectOf(data)}`}>
          <Text>
            {statusTextOf(data)}. Requested by {data.automatic ? "the rotation policy" : data.requestedBy}{" "}
            <Instant at={data.createdAt} relative />
            {data.nextAt && (
              <>
                , next step <Instant at={data.nextAt} relative />
              </>
            )}
            . <Link href={createHref("/rotation")}>All applications and rotations</Link>
          </Text>
          <OpenPoints rotation={data} />
          <Keys rotation={data} />
          {data.attention && <Attention attention={data.attention} />}
          {data.failure && (
            <Text>
              {data.failure.message} {data.failure.remedy}
            </Text>
          )}
          <Actions rotation={data} />
          <Steps rotation={data} />
          <Affected rotation={data} />
        </View>
      )}
    </QueryResult>
  );
}

/** Names the limits of the steps: possible copies of the old secret, and places that could not be searched. The card below lists both. */
function OpenPoints({ rotation: { notUpdated, coverage } }: { rotation: Rotation }) {
  const points = [
    counted(possibleCopies(notUpdated), "possible copy of the old secret", "possible copies of the old secret"),
    counted(coverage.length, "place that could not be searched", "places that could not be searched"),
  ].filter((text) => !text.startsWith("0 "));
  if (points.length === 0) return null;
  return <Text>To check under Affected resources: {points.join(" and ")}.</Text>;
}

/** The key or the user that the rotation replaces, and its Azure resource. Empty for other secrets. */
function Keys({ rotation: { resourceId, keyKind, oldKeyId, newKeyId } }: { rotation: Rotation }) {
  if (resourceId === null || oldKeyId === null) return null;
  const resourceGroup = /\/resourceGroups\/([^/]+)/i.exec(resourceId)?.[1];
  return (
    <Text>
      Replaces {oldKeyId} by{" "}
      {newKeyId ?? textsOfKind(keyKind, "the other key of the pair", "the other user of the pair")}
      {resourceGroup !== undefined && `, in the resource group ${isolated(resourceGroup)}`}.{" "}
      <Link href={createHref("/credentials", { search: resourceName(resourceId) })}>Credentials of the resource</Link>
    </Text>
  );
}

/** The steps that ran, run or will run. `reasons`: why the old secret can't be deleted yet, so that the rotation waits. */
function Steps({ rotation }: { rotation: Rotation }) {
  const { reasons, notes } = rotation;
  return (
    <Card title="Steps">
      <RotationTimeline of={rotation} />
      <Lines title="The rotation can't finish yet, because" lines={reasons} />
      <Lines title="Differences from the requested settings" lines={notes} />
    </Card>
  );
}

/** The vault secrets that the rotation writes, the consumers of the secret, and the places that it leaves out. */
function Affected({ rotation }: { rotation: Rotation }) {
  const { targets, consumers, verifiedMeans, coverage } = rotation;
  return (
    <Card title="Affected resources">
      <Targets targets={targets} />
      <Lines
        title="Consumers"
        none="No consumers found."
        lines={consumers.map(
          ({ name, kind, evidence, state, holds: usedValue, problem }) =>
            `${isolated(name)} (${kindOf({ kind, environment: null })}, ${evidenceText(evidence)}): ${CONSUMER_STATES[state]}${usedValue ? `, ${VERIFICATION_RESULTS[usedValue]}` : ""}${problem ? `. ${problem}` : ""}`,
        )}
      />
      {consumers.length > 0 && <Text>{verifiedMeans}</Text>}
      <NotWritten of={rotation} />
      <NotSearched coverage={coverage} />
    </Card>
  );
}

/** The vault secrets that the rotation writes, with the written version, its time and its check. */
function Targets({ targets }: Pick<Rotation, "targets">) {
  if (targets.length === 0)
    return <Lines title="Key Vault secrets" none="The rotation updates no key vault secret." lines={[]} />;
  return (
    <>
      <Text weight="semibold" block>
        Key Vault secrets
      </Text>
      <ul>
        {targets.map(({ vaultName, secretName, kind, state, version, writtenAt, checkedAt }) => (
          <li key={`${vaultName}/${secretName}`}>
            {/* No scan reads the vault for handover. */}
            {kind === "handover" ? (
              `${vaultName}/${secretName}`
            ) : (
              <Link href={createHref(`/inventory/${encodeURIComponent(`${vaultName}.secret.${secretName}`)}`)}>
                {vaultName}/{secretName}
              </Link>
            )}
            : {TARGET_STATES[state]}
            {writtenAt && (
              <>
                . The new value was written as version {version} on <Instant at={writtenAt} />
              </>
            )}
            {checkedAt && (
              <>
                , and read back on <Instant at={checkedAt} />: the secret stores the new value
              </>
            )}
            {writtenAt && !checkedAt && kind !== "handover" && ". It was not read back yet"}
            {kind === "handover" && ". Collect the new secret here: no program reads this key vault secret"}.
          </li>
        ))}
      </ul>
    </>
  );
}

/** Reason why a rotation with the status `needsAttention` stopped, with its changes so far, the working credentials, and the next steps. */
function Attention({ attention: { message, done, safe, next } }: { attention: NonNullable<Rotation["attention"]> }) {
  return (
    <MessageBar intent="warning" layout="multiline">
      <MessageBarBody>
        <MessageBarTitle>{message}</MessageBarTitle>
        {done} {safe} {next}
      </MessageBarBody>
    </MessageBar>
  );
}

/**
 * The buttons of a rotation that has not ended. `goingBack` is the status that a rollback will end with. It is null while there
 * is no rollback. `appId` is null if the rotation replaces a vault secret that is no client secret of an application.
 */
function Actions({ rotation }: { rotation: Rotation }) {
  const { rotationId, status, needsConfirmation, goingBack } = rotation;
  const params = { path: { rotation_id: rotationId ?? "" } };
  const whyNot = useWhyNot()("cancelRotation");
  if (FINAL_STATUSES.includes(status)) return null;
  if (whyNot !== undefined) return <Text>You can't cancel or finish this rotation. {whyNot}</Text>;
  return (
    <ButtonRow>
      {/* The old secret can't be restored any more while it is being deleted. */}
      {goingBack === null && status !== "revoking" && (
        <Operate
          operation="cancelRotation"
          title="Cancel and roll back"
          action="Cancel and roll back"
          submit={(_, cancel) => cancel({ params })}
        >
          <Text>{cancelTextOf(rotation)}</Text>
        </Operate>
      )}
      {/* A user can confirm an end that waits for it, end the overlap period early, or end a rotation that has stopped. */}
      {(needsConfirmation || status === "overlapping" || status === "needsAttention") && (
        <Operate
          operation="finishRotation"
          title={goingBack === null ? "Finish rotation now" : "End rollback"}
          action={finishActionOf(rotation)}
          submit={(form, finish) => finish({ params, body: { force: form.has("force") } })}
        >
          <Text>{finishTextOf(rotation)}</Text>
          <CheckField
            name="force"
            label={
              goingBack === null
                ? "Finish even if consumers still use the old value"
                : "Finish even if consumers could not be restored"
            }
            hint="The audit log records this choice."
          />
        </Operate>
      )}
      {status === "needsAttention" && (
        <Operate
          operation="retryRotation"
          title="Retry step"
          action="Retry step"
          submit={(_, retry) => retry({ params })}
        >
          <Text>Runs the failed step again. Then the rotation continues with the next steps.</Text>
        </Operate>
      )}
    </ButtonRow>
  );
}

/** Returns the question before a cancellation, with its effect. The old secret is still valid, because the last step deletes it. */
function cancelTextOf({ appId, keyKind, oldKeyId, steps }: Rotation): string {
  const hasChanged = steps.some(({ name, status }) => CHANGING_STEPS.includes(name) && status !== "waiting");
  if (keyKind !== null) {
    const noun = textsOfKind(keyKind, "key", "login");
    const kept = textsOfKind(
      keyKind,
      "A key that was regenerated keeps its new value.",
      "A user that got a new password keeps it.",
    );
    return `Stop this rotation? ${hasChanged ? `${oldKeyId} is saved to Key Vault again, and consumers that already use the new ${noun} are switched back` : "No key vault secret and no consumer was changed yet"}. ${oldKeyId} stays valid. ${kept}`;
  }
  if (!hasChanged)
    return `Stop this rotation? No key vault secret and no consumer was changed yet. ${appId === null ? "" : "A new client secret that was created is deleted. "}The old secret stays valid.`;
  return appId === null
    ? "Stop this rotation? The old value is written to the vault again, as a new version. Consumers that already use the new value are switched back. The new value stays in the vault as an earlier version."
    : "Stop this rotation? The old secret stays valid and is saved to Key Vault again. Consumers that already use the new secret are switched back. Then the new secret is deleted. You can't undo this.";
}

/** Steps that change key vault secrets or consumers. */
const CHANGING_STEPS: Rotation["steps"][number]["name"][] = ["publish", "verify", "overlap", "revoke"];

/** Returns the label of the button that ends the overlap period early, or a rollback that could not restore all consumers. */
function finishActionOf({ goingBack, appId }: Rotation): string {
  if (goingBack !== null) return "End rollback";
  return appId === null ? "Finish rotation now" : "Delete old secret and finish";
}

/** Returns the consequence of the action that `finishActionOf` names, for its dialog. */
function finishTextOf({ goingBack, appId, keyKind }: Rotation): string {
  if (goingBack !== null)
    return "Ends the rollback without restoring the remaining consumers. They may still use the new secret and stop working.";
  const ofKeyOrLogin = textsOfKind(
    keyKind,
    "Ends the rotation if all included consumers use the new key. If the request asked to regenerate the old key, that happens now and can't be undone.",
    "Ends the rotation if all included consumers use the new login. The old user then gets a random password that is stored nowhere, which can't be undone.",
  );
  if (ofKeyOrLogin !== undefined) return ofKeyOrLogin;
  if (appId === null)
    return "Ends the rotation if all included consumers use the new value. Old versions stay in the vault.";
  return "Deletes the old secret if all known consumers use the new one. You can't undo this. Anything that still uses the old secret stops working.";
}
