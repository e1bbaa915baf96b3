import { Badge, Link, MessageBar, MessageBarBody, MessageBarTitle, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { Answer } from "../../parts/answer.tsx";
import { Card } from "../../parts/card.tsx";
import { kindOf } from "../../parts/dependency-words.ts";
import { CheckField } from "../../parts/fields.tsx";
import { untilOver } from "../../parts/follow.ts";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { Lines, NotWritten } from "../../parts/rotation-plan.tsx";
import { useParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { CONSUMER_STATES, HOLDS, STATUSES, STEPS, TARGET_STATES } from "./words.ts";

type Rotation = Schemas["Rotation"];

const OVER: Rotation["status"][] = ["completed", "failed", "cancelled", "rolledBack"];
const COLORS = { done: "success", failed: "danger", running: "brand", waiting: "subtle", skipped: "subtle" } as const;

/** One rotation, its steps as they happen. */
export default function OneRotation() {
  const { rotationId = "" } = useParams();
  const rotation = api.useQuery(
    "get",
    "/api/automation/rotation/rotations/{rotation_id}",
    { params: { path: { rotation_id: rotationId } } },
    untilOver<Rotation>(({ status }) => OVER.includes(status)),
  );
  return (
    <Answer of={rotation}>
      {(data) => (
        <View title={data.appName ?? data.assetId ?? "Rotation"}>
          <Text>
            {STATUSES[data.status]}, asked for by {data.automatic ? "its policy" : data.requestedBy}{" "}
            <Instant at={data.createdAt} relative />
            {data.nextAt && (
              <>
                ; it goes on <Instant at={data.nextAt} relative />
              </>
            )}
            . <Link href={createHref("/rotation", {})}>To the rotations</Link>
          </Text>
          {data.attention && <Attention attention={data.attention} />}
          {data.failure && (
            <Text>
              {data.failure.message} {data.failure.remedy}
            </Text>
          )}
          <Actions rotation={data} />
          <Steps rotation={data} />
          <Touched rotation={data} />
        </View>
      )}
    </Answer>
  );
}

function Steps({ rotation: { steps, overlapEndsAt, reasons, notes } }: { rotation: Rotation }) {
  return (
    <Card title="Steps">
      <ol>
        {steps.map(({ name, status, finishedAt, failure }) => (
          <li key={name}>
            {STEPS[name]} <Badge color={COLORS[status]}>{status}</Badge>{" "}
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
      <Lines title="What stands against removing the old one" lines={reasons} />
      <Lines title="Decided otherwise than asked for" lines={notes} />
    </Card>
  );
}

function Touched({ rotation }: { rotation: Rotation }) {
  const { targets, consumers, verifiedMeans, coverage } = rotation;
  return (
    <Card title="Who is touched">
      <Lines
        title="Vault secrets"
        none="None is written."
        lines={targets.map(({ vaultName, secretName, state }) => `${vaultName}/${secretName}: ${TARGET_STATES[state]}`)}
      />
      <Lines
        title="Who uses it"
        none="Nobody is known to."
        lines={consumers.map(
          ({ name, kind, evidence, state, holds, problem }) =>
            `${isolated(name)} (${kindOf({ kind, environment: null })}, ${isolated(evidence)}): ${CONSUMER_STATES[state]}${holds ? `, ${HOLDS[holds]}` : ""}${problem ? `. ${problem}` : ""}`,
        )}
      />
      <Text>{verifiedMeans}</Text>
      <NotWritten of={rotation} />
      <Lines title="What could not be looked into" lines={coverage} />
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

function Actions({ rotation: { rotationId, status, needsConfirmation, goingBack } }: { rotation: Rotation }) {
  const params = { path: { rotation_id: rotationId ?? "" } };
  if (OVER.includes(status)) return null;
  return (
    <div>
      {goingBack === null && (
        <Operate
          operation="cancelRotation"
          title="Cancel and go back"
          action="Put it back"
          submit={(_, cancel) => cancel({ params })}
        >
          <Text>Everybody gets the old secret back, and the new one goes.</Text>
        </Operate>
      )}{" "}
      {(needsConfirmation || status === "overlapping" || status === "needsAttention") && (
        <Operate
          operation="finishRotation"
          title="Finish"
          action="Remove the old secret"
          submit={(form, finish) => finish({ params, body: { force: form.has("force") } })}
        >
          <Text>
            The old secret is removed for good, if everybody who is known to use it holds the new one. Whoever still
            signs in with the old one can no longer.
          </Text>
          <CheckField name="force" label="Whatever stands against it. This is entered in the audit log." />
        </Operate>
      )}{" "}
      {status === "needsAttention" && (
        <Operate
          operation="retryRotation"
          title="Try again"
          action="Try again"
          submit={(_, retry) => retry({ params })}
        >
          <Text>The step that failed is tried again.</Text>
        </Operate>
      )}
    </div>
  );
}
