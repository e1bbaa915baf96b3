import { Badge, Link, MessageBar, MessageBarBody, MessageBarTitle, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Card } from "../../parts/card.tsx";
import { kindOf } from "../../parts/dependency-texts.ts";
import { CheckField } from "../../parts/fields.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { Lines, NotWritten } from "../../parts/rotation-plan.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import {
  CONSUMER_STATES,
  STATUSES,
  STEP_STATUSES,
  STEPS,
  TARGET_STATES,
  VERIFICATION_RESULTS,
} from "./status-texts.ts";

type Rotation = Schemas["Rotation"];

const OVER: Rotation["status"][] = ["completed", "failed", "cancelled", "rolledBack"];
const COLORS = { done: "success", failed: "danger", running: "brand", waiting: "subtle", skipped: "subtle" } as const;

/** One rotation with the progress of its steps. */
export default function OneRotation() {
  const { rotationId = "" } = useParams();
  const rotation = api.useQuery(
    "get",
    "/api/automation/rotation/rotations/{rotation_id}",
    { params: { path: { rotation_id: rotationId } } },
    pollUntil<Rotation>(({ status }) => OVER.includes(status)),
  );
  return (
    <QueryResult of={rotation}>
      {(data) => (
        <View title={data.appName ?? data.assetId ?? "Rotation"}>
          <Text>
            {STATUSES[data.status]}. Requested by {data.automatic ? "the rotation policy" : data.requestedBy}{" "}
            <Instant at={data.createdAt} relative />
            {data.nextAt && (
              <>
                , next step <Instant at={data.nextAt} relative />
              </>
            )}
            . <Link href={createHref("/rotation", {})}>All rotations</Link>
          </Text>
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

function Steps({ rotation: { steps, overlapEndsAt, reasons, notes } }: { rotation: Rotation }) {
  return (
    <Card title="Steps">
      <ol>
        {steps.map(({ name, status, finishedAt, failure }) => (
          <li key={name}>
            {STEPS[name]} <Badge color={COLORS[status]}>{STEP_STATUSES[status]}</Badge>{" "}
            {finishedAt && <Instant at={finishedAt} relative />}
            {name === "overlap" && status !== "done" && overlapEndsAt && (
              <>
                until <Instant at={overlapEndsAt} />
              </>
            )}{" "}
            {failure && `${failure.message} ${failure.remedy}`}
          </li>
        ))}
      </ol>
      <Lines title="Reasons why the rotation can't finish" lines={reasons} />
      <Lines title="Differences from the request" lines={notes} />
    </Card>
  );
}

function Affected({ rotation }: { rotation: Rotation }) {
  const { targets, consumers, verifiedMeans, coverage } = rotation;
  return (
    <Card title="Affected resources">
      <Lines
        title="Vault secrets"
        none="The rotation writes no vault secret."
        lines={targets.map(({ vaultName, secretName, state }) => `${vaultName}/${secretName}: ${TARGET_STATES[state]}`)}
      />
      <Lines
        title="Consumers"
        none="No consumers found."
        lines={consumers.map(
          ({ name, kind, evidence, state, holds, problem }) =>
            `${isolated(name)} (${kindOf({ kind, environment: null })}, ${isolated(evidence)}): ${CONSUMER_STATES[state]}${holds ? `, ${VERIFICATION_RESULTS[holds]}` : ""}${problem ? `. ${problem}` : ""}`,
        )}
      />
      <Text>{verifiedMeans}</Text>
      <NotWritten of={rotation} />
      <Lines title="Scopes that could not be read" lines={coverage} />
    </Card>
  );
}

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

function Actions({ rotation }: { rotation: Rotation }) {
  const { rotationId, status, needsConfirmation, goingBack } = rotation;
  const params = { path: { rotation_id: rotationId ?? "" } };
  if (OVER.includes(status)) return null;
  return (
    <div>
      {goingBack === null && (
        <Operate
          operation="cancelRotation"
          title="Cancel and roll back"
          action="Roll back"
          submit={(_, cancel) => cancel({ params })}
        >
          <Text>
            {rotation.appId === null
              ? "Writes the old value as a new version and restores the consumers."
              : "Restores the old secret for all consumers and deletes the new secret."}
          </Text>
        </Operate>
      )}{" "}
      {(needsConfirmation || status === "overlapping" || status === "needsAttention") && (
        <Operate
          operation="finishRotation"
          title={goingBack === null ? "Finish rotation" : "End rollback"}
          action={finishActionOf(rotation)}
          submit={(form, finish) => finish({ params, body: { force: form.has("force") } })}
        >
          <Text>{finishTextOf(rotation)}</Text>
          <CheckField
            name="force"
            label={
              goingBack === null
                ? "Finish even if consumers still use the old value. Recorded in the audit log."
                : "Leave consumers that could not be restored. Recorded in the audit log."
            }
          />
        </Operate>
      )}{" "}
      {status === "needsAttention" && (
        <Operate
          operation="retryRotation"
          title="Retry step"
          action="Retry step"
          submit={(_, retry) => retry({ params })}
        >
          <Text>Retries the failed step.</Text>
        </Operate>
      )}
    </div>
  );
}

/** Label of the button that ends the overlap or a rollback that waits for a person. */
function finishActionOf({ goingBack, appId }: Rotation): string {
  if (goingBack !== null) return "End rollback";
  return appId === null ? "Finish rotation" : "Delete old secret";
}

function finishTextOf({ goingBack, appId }: Rotation): string {
  if (goingBack !== null)
    return "Ends the rollback without restoring the remaining consumers. They may still use the new secret and stop working.";
  if (appId === null)
    return "Ends the rotation if all included consumers use the new value. Old versions stay in the vault.";
  return "Deletes the old secret if all known consumers use the new one. You can't undo this. Anything that still uses the old secret stops working.";
}
