import { Button, makeStyles, Spinner, Text, tokens } from "@fluentui/react-components";
import { useQueries } from "@tanstack/react-query";
import { useState } from "react";
import { useMay } from "../../api/access.ts";
import { api, asProblem, client, type Schemas } from "../../api/client.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { ChoiceField, LongField, TextField } from "../../parts/fields.tsx";
import { fieldText } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";
import { counted } from "../../parts/plural.ts";
import { QueryFailure } from "../../parts/query-result.tsx";
import { expiryRulesOf, SnoozeFields, snoozeOf } from "../../parts/snooze-fields.tsx";
import type { Asset } from "./query.ts";

/** Maximum number of selected assets. Each needs some API calls, and the API's rate limit is 60 a minute by default. */
export const MAX_SELECTED = 20;

const useStyles = makeStyles({
  bar: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalS, alignItems: "center" },
});

/** The bar above the list with the actions for the selected assets. Rendered only if assets are selected. */
export function BulkActions({ assets, clear }: { assets: Asset[]; clear(): void }) {
  const styles = useStyles();
  const may = useMay();
  const [showsCommands, setShowsCommands] = useState(false);
  if (assets.length === 0) return null;
  return (
    <>
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset is for form controls. */}
      <div role="group" aria-label="Actions for selected assets" className={styles.bar}>
        <Text role="status">
          {assets.length} selected{assets.length === MAX_SELECTED && ` (maximum)`}
        </Text>
        <SnoozeAssets assets={assets} />
        <ExemptAssets assets={assets} />
        {may("listViolations") && (
          <Button size="small" aria-expanded={showsCommands} onClick={() => setShowsCommands(!showsCommands)}>
            {showsCommands ? "Hide commands" : "Show fix commands"}
          </Button>
        )}
        <Button size="small" onClick={clear}>
          Clear selection
        </Button>
      </div>
      {showsCommands && <Commands assets={assets} />}
    </>
  );
}

/** The violations of the selected assets, and the queries that load them. */
function useViolations(assets: Asset[]) {
  const queries = useQueries({
    queries: assets.map(({ id }) =>
      api.queryOptions("get", "/compliance/violations", { params: { query: { resource: id, limit: 100 } } }),
    ),
  });
  return {
    violations: queries.flatMap(({ data }) => data?.items ?? []),
    isLoading: queries.some(({ isPending }) => isPending),
    failed: queries.find(({ error }) => error),
  };
}

/** The Azure CLI commands that fix the violations of the selected assets, as one text to copy. */
function Commands({ assets }: { assets: Asset[] }) {
  const { violations, isLoading, failed } = useViolations(assets);
  if (isLoading) return <Spinner size="small" label="Loading" />;
  if (failed) return <QueryFailure of={failed} />;
  const notExempt = violations.filter(({ exempted }) => !exempted);
  if (notExempt.length === 0) return <Text>The selected assets pass all checks, so there is nothing to fix.</Text>;
  const text = notExempt.map(
    ({ resourceId, title, remediation }) => `# ${titleOfId(resourceId)}: ${title}\n${remediation.cli}`,
  );
  return <Copyable label={`Azure CLI (${counted(notExempt.length, "violation")})`} text={text.join("\n\n")} />;
}

/** Calls `change` for each item in turn, and counts the results. An item whose change exists already is no failure. */
async function changeEach<T>(items: readonly T[], change: (item: T) => Promise<unknown>) {
  const results = { done: 0, existing: 0 };
  for (const item of items) {
    try {
      await change(item);
      results.done++;
    } catch (thrown) {
      const problem = asProblem(thrown);
      // A form that is sent again after a failure in the middle changes only the rest.
      if (problem.code !== "alreadyExists") throw problem;
      results.existing++;
    }
  }
  return results;
}

/** Returns the numbers of created and existing things as a sentence. */
const resultText = ({ done, existing }: { done: number; existing: number }, thing: string): string =>
  `${counted(done, thing)} created.${existing > 0 ? ` ${counted(existing, thing)} existed already.` : ""}`;

/** Value of the choice of an alert rule for all rules about an expiry. */
const ALL_RULES = "all";

/** The button that snoozes the selected assets, for one alert rule or for all rules about an expiry. */
function SnoozeAssets({ assets }: { assets: Asset[] }) {
  return (
    <Operate
      operation="createAlertSnooze"
      title="Snooze selected"
      action="Snooze assets"
      submit={async (form, create) => {
        const ruleId = fieldText(form, "ruleId");
        const ruleIds = ruleId === ALL_RULES ? (await readExpiryRules()).map(({ id }) => id) : [ruleId];
        const pairs = assets.flatMap(({ id }) => ruleIds.map((rule) => ({ assetId: id, ruleId: rule })));
        return resultText(
          await changeEach(pairs, (pair) => create({ body: { ...snoozeOf(form), ...pair } })),
          "snooze",
        );
      }}
    >
      <Text>
        Until the date, the alert rule sends no notifications about the {counted(assets.length, "selected asset")}.
      </Text>
      <RuleChoice />
      <SnoozeFields />
    </Operate>
  );
}

/** @throws {Problem} If the rules can't be read. */
async function readExpiryRules(): Promise<Schemas["AlertRule"][]> {
  const { data, error } = await client.GET("/alerts/rules", { params: { query: { limit: 1000 } } });
  if (error) throw error;
  return expiryRulesOf(data.items);
}

function RuleChoice() {
  const rules = api.useQuery("get", "/alerts/rules", { params: { query: { limit: 1000 } } });
  const options = expiryRulesOf(rules.data?.items ?? []).map(({ id, name }) => [id, name] as const);
  return (
    <>
      <QueryFailure of={rules} />
      <ChoiceField
        name="ruleId"
        label="Alert rule"
        hint={
          rules.data && options.length === 0 ? "There is no alert rule about an expiry. Create one first." : undefined
        }
        options={{ [ALL_RULES]: "All rules about an expiry", ...Object.fromEntries(options) }}
      />
    </>
  );
}

/** The button that exempts the selected assets from one of the checks that they fail. */
function ExemptAssets({ assets }: { assets: Asset[] }) {
  const may = useMay();
  if (!may("listViolations")) return null;
  return (
    <Operate
      operation="createExemption"
      title="Exempt selected"
      action="Create exemptions"
      submit={async (form, create) => {
        const checkId = fieldText(form, "checkId");
        const body = {
          checkId,
          category: "waiver",
          reason: fieldText(form, "reason"),
          until: fieldText(form, "until"),
        } as const;
        const results = await changeEach(form.getAll(`assets of ${checkId}`).map(String), (id) =>
          create({ body: { ...body, scope: { type: "asset", id } } }),
        );
        return resultText(results, "exemption");
      }}
    >
      <FailedChecks assets={assets} />
      <LongField name="reason" label="Reason" hint="Example: The system is shut down next month" required />
      <TextField name="until" label="Expires" hint="Last day of the exemptions (UTC)" type="date" required />
    </Operate>
  );
}

/** The choice of a check that at least one of the assets fails. Hidden fields contain the assets of each check. */
function FailedChecks({ assets }: { assets: Asset[] }) {
  const { violations, isLoading, failed } = useViolations(assets);
  if (isLoading) return <Spinner size="small" label="Loading" />;
  if (failed) return <QueryFailure of={failed} />;
  const notExempt = violations.filter(({ exempted }) => !exempted);
  const byCheck = new Map<string, typeof notExempt>();
  for (const violation of notExempt)
    byCheck.set(violation.checkId, [...(byCheck.get(violation.checkId) ?? []), violation]);
  if (byCheck.size === 0) return <Text>The selected assets fail no check, so there is nothing to exempt.</Text>;
  return (
    <>
      <Text>
        Violations of the check no longer lower the compliance score until the exemptions expire. Assets that pass the
        check get no exemption.
      </Text>
      <ChoiceField
        name="checkId"
        label="Check"
        options={Object.fromEntries(
          [...byCheck].map(([id, failures]) => [id, `${failures[0]!.title} (${failures.length} of ${assets.length})`]),
        )}
      />
      {notExempt.map(({ id, checkId, resourceId }) => (
        <input key={id} type="hidden" name={`assets of ${checkId}`} value={resourceId} />
      ))}
    </>
  );
}
