import { Text } from "@fluentui/react-components";
import type { Call } from "../../api/calls.ts";
import { api, asProblem, type Schemas } from "../../api/client.ts";
import { ChoiceField } from "../../parts/fields.tsx";
import { fieldText } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { QueryResult } from "../../parts/query-result.tsx";
import { expiryRulesOf, SnoozeFields, snoozeOf } from "../../parts/snooze-fields.tsx";
import { Unavailable, useWhyNot } from "../../parts/unavailable.tsx";

interface Props {
  assetId: string;
  /** The display name of the asset. */
  name: string;
}

/**
 * Query options. The pages of all assets share the response for five minutes, so that opening many of them stays within the rate
 * limit. A change on this page loads it again.
 */
const UP_TO_5_MINUTES_OLD = { staleTime: 300_000 };

/** Returns the alert rules. All components of the view share one response. */
const useRules = (enabled = true) =>
  api.useQuery("get", "/alerts/rules", { params: { query: { limit: 1000 } } }, { ...UP_TO_5_MINUTES_OLD, enabled });

/** The action that pauses notifications about the asset, or why it is not available. */
export function SnoozeAction({ assetId, name }: Props) {
  const whyNot = useWhyNot()("createAlertSnooze");
  const list = useRules(whyNot === undefined);
  if (whyNot !== undefined) return <Unavailable title="Snooze" reason={whyNot} />;
  // The form needs the rules: without them, "All rules about expiry" would create no snooze.
  return (
    <QueryResult of={list}>
      {({ items }) => <SnoozeForRules assetId={assetId} name={name} rules={expiryRulesOf(items)} />}
    </QueryResult>
  );
}

/** The action with the choice of a rule. */
function SnoozeForRules({ assetId, name, rules }: Props & { rules: Schemas["AlertRule"][] }) {
  if (rules.length === 0)
    return <Unavailable title="Snooze" reason="No alert rule notifies about expiry, so there is nothing to pause." />;
  return (
    <Operate
      operation="createAlertSnooze"
      title="Snooze"
      about={name}
      action="Snooze asset"
      submit={async (form, create) => {
        const ruleId = fieldText(form, "ruleId");
        const ruleIds = ruleId === "" ? rules.map(({ id }) => id) : [ruleId];
        await snoozeForEach(ruleIds, (id) => create({ body: { ...snoozeOf(form), ruleId: id, assetId } }));
      }}
    >
      <Text>
        Until the date, no notifications are sent about this asset, except that it was renewed or deleted. Notifications
        about other assets are still sent.
      </Text>
      <ChoiceField
        name="ruleId"
        label="Alert rule"
        options={{
          ...(rules.length > 1 && { "": "All rules about expiry" }),
          ...Object.fromEntries(rules.map((rule) => [rule.id, rule.name])),
        }}
      />
      <SnoozeFields />
    </Operate>
  );
}

/**
 * Creates a snooze for each rule. Skips rules for which the asset is already snoozed, if there are several rules.
 *
 * @throws {Problem} If a request fails, or if the asset is already snoozed for the only rule.
 */
async function snoozeForEach(
  ruleIds: string[],
  create: (ruleId: string) => ReturnType<Call<"createAlertSnooze">>,
): Promise<void> {
  for (const ruleId of ruleIds) {
    try {
      await create(ruleId);
    } catch (thrown) {
      if (ruleIds.length === 1 || asProblem(thrown).code !== "alreadyExists") throw thrown;
    }
  }
}

/** The active snoozes of the asset, each with a button that ends it. */
export function ActiveSnoozes({ assetId }: Pick<Props, "assetId">) {
  const query = { limit: 1000 };
  const snoozes = api.useQuery("get", "/alerts/snoozes", { params: { query } }, UP_TO_5_MINUTES_OLD);
  return (
    <QueryResult of={snoozes}>
      {({ items }) =>
        items
          .filter((snooze) => snooze.assetId === assetId)
          .map(({ id, until, reason, createdBy, ruleId }) => (
            <div key={id}>
              Snoozed until <Instant at={until} /> by {isolated(createdBy)}
              {ruleId !== null && <RuleName ruleId={ruleId} />}: {isolated(reason)}{" "}
              <Operate
                operation="deleteAlertSnooze"
                title="End snooze"
                about={reason}
                action="End snooze"
                submit={(_, end) => end({ params: { path: { snooze_id: id } } })}
              >
                <Text>The alert rule notifies about this asset again from now on.</Text>
              </Operate>
            </div>
          ))
      }
    </QueryResult>
  );
}

/** The name of a snoozed rule, because "All rules about expiry" creates a snooze for each rule. */
function RuleName({ ruleId }: { ruleId: string }) {
  const rule = useRules().data?.items.find(({ id }) => id === ruleId);
  return rule && ` for the rule ${isolated(rule.name)}`;
}
