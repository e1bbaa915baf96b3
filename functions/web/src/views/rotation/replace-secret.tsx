import { Text } from "@fluentui/react-components";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { CheckField, FormSection, NumberField, SecretField, TextField } from "../../parts/fields.tsx";
import { fieldText } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { Lines } from "../../parts/rotation-plan.tsx";

type Secret = Schemas["Secretless"]["secrets"][number];
type Run = Schemas["SecretlessRun"];
type Consumer = Secret["consumers"][number];

const PLACEHOLDER = /<[^<>]*>/;
const OVER: readonly Run["status"][] = ["completed", "failed", "rolledBack"];

const STATUSES = {
  planned: "Planned",
  running: "In progress",
  rollingBack: "Rolling back",
  needsAttention: "Needs attention",
  completed: "Completed",
  failed: "Failed, and all changes were undone",
  rolledBack: "Rolled back",
} as const satisfies Record<Run["status"], string>;

const STEPS = {
  check: "Check the plan",
  add: "Add federated credentials",
  prove: "Prove federated credentials",
  convert: "Convert service connections",
  watch: "Watch sign-ins with the secret",
  remove: "Remove the secret",
  revert: "Revert service connections",
  takeBack: "Remove federated credentials",
} as const satisfies Record<Run["steps"][number]["name"], string>;

const STEP_STATUSES = {
  waiting: "not started",
  running: "in progress",
  done: "done",
  failed: "failed",
  skipped: "skipped",
} as const satisfies Record<Run["steps"][number]["status"], string>;

/** Returns the members of a proposed federated credential that a person must fill in. */
const openMembers = ({ federatedCredential: proposed }: Consumer): ("issuer" | "subject")[] =>
  proposed === null ? [] : (["issuer", "subject"] as const).filter((member) => PLACEHOLDER.test(proposed[member]));

/** Azure DevOps chooses the values of a connection that it created, so its consumer has no questions. */
const isAsked = (consumer: Consumer): boolean => consumer.questions.length > 0 && openMembers(consumer).length > 0;

/**
 * The button that replaces a client secret by federated credentials. The form can be submitted only after it has shown the plan.
 * Not rendered for a secret that can't be replaced.
 */
export function ReplaceSecret({ appId, secret }: { appId: string; secret: Secret }) {
  const { keyId, displayName, verdict, consumers } = secret;
  const may = useMay();
  if (verdict !== "possible" || !may("replaceSecret")) return null;
  const bodyOf = (form: FormData, rest: { dryRun: boolean; plan?: string }) => ({
    params: { path: { app_id: appId } },
    body: {
      keyId,
      idleDays: Number(fieldText(form, "idleDays")),
      replacements: consumers.flatMap((consumer, index) =>
        isAsked(consumer)
          ? {
              consumer: consumer.id,
              ...Object.fromEntries(
                openMembers(consumer).map((member) => [member, fieldText(form, `${member}-${index}`)]),
              ),
            }
          : [],
      ),
      ...rest,
    },
  });
  return (
    <div>
      <Operate
        operation="replaceSecret"
        title="Replace secret"
        about={isolated(displayName ?? keyId)}
        action="Replace secret"
        preview={{
          action: "Preview plan",
          isRequired: true,
          load: async (form, replace) => <Plan run={await replace(bodyOf(form, { dryRun: true }))} />,
        }}
        submit={async (form, replace) => {
          await replace(bodyOf(form, { dryRun: false }));
        }}
      >
        <Text>
          Adds the federated credentials, waits until the secret is no longer used, and removes the secret. Microsoft
          Entra can't restore it. The run starts when you select Replace secret.
        </Text>
        {consumers.map((consumer, index) =>
          isAsked(consumer) ? (
            <FormSection key={consumer.id} title={isolated(consumer.name)}>
              {openMembers(consumer).map((member) => (
                <TextField
                  key={member}
                  name={`${member}-${index}`}
                  label={member === "issuer" ? "Issuer" : "Subject"}
                  hint={`Exactly as in a token of the workload. Must fit ${consumer.federatedCredential?.[member]}`}
                  required
                />
              ))}
            </FormSection>
          ) : null,
        )}
        <NumberField
          name="idleDays"
          label="Days without a sign-in"
          hint="Number of days without a sign-in with the secret before it is removed. Example: 35"
          required
          min={1}
          max={365}
          defaultValue="35"
        />
      </Operate>
      <Text block>
        Replace secret first shows a plan, and changes nothing until you start the run. The run makes the consumers sign
        in without a secret and then removes the secret. Rotate secret creates a new secret instead.
      </Text>
    </div>
  );
}

/** The plan of a dry run: the federated credentials, the steps, and what a person changes. */
function Plan({ run }: { run: Run }) {
  const { credentials, steps, byPerson, idleDays } = run;
  return (
    <>
      <Lines
        title="Federated credentials"
        none="None is needed."
        lines={credentials.map(({ issuer, subject, audience }) =>
          issuer === null
            ? "Azure DevOps chooses the issuer and the subject."
            : `${isolated(subject ?? "")}, issued by ${isolated(issuer)} for ${audience}`,
        )}
      />
      <Lines title="Steps of the service" lines={steps.map(({ name }) => STEPS[name])} />
      <Lines title="Your changes before the secret is idle" none="Nothing." lines={byPerson.map(({ text }) => text)} />
      <Text>
        The secret is removed after {counted(idleDays, "day")} without a sign-in, once you accepted the risks.
      </Text>
    </>
  );
}

/** The replacements of client secrets of an application, the newest first, each with its steps as they happen. */
export function Replacements({ appId }: { appId: string }) {
  const runs = api.useQuery(
    "get",
    "/api/automation/rotation/secretless",
    { params: { query: { appId } } },
    pollUntil<Schemas["SecretlessRunList"]>(({ items }) => items.every(({ status }) => OVER.includes(status))),
  );
  return (
    <QueryResult of={runs}>
      {({ items }) => (
        <>
          {items.map((run) => (
            <Replacement key={run.runId} run={run} />
          ))}
        </>
      )}
    </QueryResult>
  );
}

function Replacement({ run }: { run: Run }) {
  const { keyId, status, requestedBy, createdAt, steps, watch, failure, notes, connections } = run;
  const waiting = connections.filter(({ state }) => state === "waiting");
  return (
    <div>
      <Text weight="semibold" block>
        Replacement of {isolated(keyId)}: {STATUSES[status]}
      </Text>
      <Text>
        Requested by {requestedBy} <Instant at={createdAt} relative />.
      </Text>
      {failure && (
        <Text block>
          {failure.message} {failure.remedy}
        </Text>
      )}
      <Lines title="Steps" lines={steps.map((step) => `${STEPS[step.name]}: ${STEP_STATUSES[step.status]}`)} />
      {waiting.map(({ id, name }) => (
        <Text key={id} block>
          Complete the conversion of {isolated(name)} in Azure DevOps. The run then continues.
        </Text>
      ))}
      {watch && !OVER.includes(status) && (
        <>
          <Text block>
            {counted(watch.idleDays, "day")} of {run.idleDays.toLocaleString()} without a sign-in
            {watch.logged ? ", as complete logs show." : ". No complete log shows it."}
          </Text>
          <Lines title="Not visible in logs" lines={watch.blindSpots.map(({ message }) => message)} />
        </>
      )}
      <Lines title="Notes" lines={notes} />
      {!OVER.includes(status) && <Actions run={run} />}
    </div>
  );
}

/** The buttons of a run that has not ended. */
function Actions({ run }: { run: Run }) {
  const { runId, status, watch, credentials } = run;
  const params = { path: { run_id: runId ?? "" } };
  const isProvable = credentials.some(({ proof }) => proof === "notProvable");
  return (
    <ButtonRow>
      {status === "running" && isProvable && (
        <Operate
          operation="proveSecretlessRun"
          title="Prove with a token"
          action="Prove"
          submit={(form, prove) => prove({ params, body: { assertion: fieldText(form, "assertion") } })}
        >
          <Text>Exchanges a token of the workload for one of the application, and discards both.</Text>
          <SecretField
            name="assertion"
            label="Token"
            hint="A token that the platform issued to the workload"
            required
          />
        </Operate>
      )}
      {status === "running" && watch !== null && watch.unconfirmed.length > 0 && (
        <Operate
          operation="confirmSecretlessRun"
          title="Accept risks"
          action="Accept and remove when idle"
          submit={(_, confirm) => confirm({ params, body: { blindSpots: watch.blindSpots.map(({ code }) => code) } })}
        >
          <Text>
            The secret is removed once it is idle. A program that still uses it can then no longer sign in, and
            Microsoft Entra can't restore the secret.
          </Text>
          <Lines title="You accept" lines={watch.blindSpots.map(({ message }) => message)} />
        </Operate>
      )}
      {status === "needsAttention" && (
        <Operate
          operation="retrySecretlessRun"
          title="Retry step"
          action="Retry step"
          submit={(_, retry) => retry({ params })}
        >
          <Text>Runs the failed step again. Then the run continues with the next steps.</Text>
        </Operate>
      )}
      {status !== "rollingBack" && (
        <Operate
          operation="rollBackSecretlessRun"
          title="Roll back"
          action="Roll back"
          submit={(form, rollBack) => rollBack({ params, body: { force: form.has("force") } })}
        >
          <Text>Reverts the service connections and removes the federated credentials that the run added.</Text>
          <CheckField
            name="force"
            label="Roll back even if workloads have switched"
            hint="A workload that signs in with a federated credential can no longer sign in then."
          />
        </Operate>
      )}
    </ButtonRow>
  );
}
