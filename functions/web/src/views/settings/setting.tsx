import { Badge, makeStyles, Text, tokens } from "@fluentui/react-components";
import type { Call } from "../../api/calls.ts";
import { client, type Problem, type Schemas } from "../../api/client.ts";
import { ChoiceField, NumberField, TextField } from "../../parts/fields.tsx";
import { fieldText } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import type { Category } from "./categories.ts";
import { labelOf, unitOf, valueText } from "./labels.ts";
import { ScopeChange } from "./scope-change.tsx";

type OneSetting = Schemas["Setting"];
interface Props {
  setting: OneSetting;
  category: Category;
}

const useStyles = makeStyles({
  setting: { borderTop: `1px solid ${tokens.colorNeutralStroke3}`, paddingTop: tokens.spacingVerticalS },
  head: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalS, alignItems: "center" },
  value: { marginInlineEnd: "auto" },
});

/**
 * One setting on the Settings page: its value, where the value comes from, its default and limits, and the controls that change
 * or reset it. A setting that is on or off has a switch, which asks before it changes anything.
 */
export function Setting({ setting, category }: Props) {
  const styles = useStyles();
  const { key, value, source, description, environmentVariable, updatedAt, updatedBy, ignored } = setting;
  return (
    <div className={styles.setting}>
      <div className={styles.head}>
        <span className={styles.value}>
          <Text weight="semibold">{labelOf(key)}</Text>: {valueText(key, value)}{" "}
          <Badge appearance="tint" color={source === "default" ? "informative" : "brand"}>
            {SOURCES[source]}
          </Badge>
        </span>
        {typeof value === "boolean" ? (
          <Toggle setting={setting} category={category} isOn={value} />
        ) : (
          <Edit setting={setting} category={category} />
        )}
        {source === "override" && <Reset setting={setting} category={category} />}
      </div>
      <Text block>{description}</Text>
      <Text block size={200}>
        {limitsText(setting)} API name: {key}. Environment variable: {environmentVariable}
        {updatedAt && (
          <>
            , last modified by {updatedBy} <Instant at={updatedAt} relative />
          </>
        )}
        {/* Invalid values of sources with a higher precedence than the effective one. */}
        {ignored.map((invalid) => `. Ignored value (${SOURCES[invalid.source]}): ${invalid.reason}`)}
      </Text>
    </div>
  );
}

/** Returns the default, unless the value is the default, and for a number the allowed values. */
function limitsText({ key, default: standard, source, minimum, maximum }: OneSetting): string {
  const limits =
    minimum === null || maximum === null ? "" : ` Allowed: ${minimum.toLocaleString()} to ${valueText(key, maximum)}.`;
  return `${source === "default" ? "" : `Default: ${valueText(key, standard)}.`}${limits}`;
}

/** Sources of a value, from the highest to the lowest precedence. The API calls a value from this page an override. */
const SOURCES: Record<OneSetting["source"], string> = {
  override: "set on this page",
  appConfiguration: "from App Configuration",
  environment: "from the environment variable",
  default: "default",
};

/** The form of one setting that is not on or off. */
function Edit({ setting, category }: Props) {
  return (
    <Operate
      operation={operationOf(category)}
      title="Edit"
      about={labelOf(setting.key)}
      action="Save setting"
      submit={async (form, change) => await save(setting, category, typedValue(setting, form), change)}
    >
      <Value setting={setting} />
    </Operate>
  );
}

/** The operations of all categories have the same shape; only the members of their bodies differ. */
const operationOf = ({ change }: Category) => change as "updateFeaturesSettings";

/** Changes the setting. @throws {Problem} If another user changed it since it was shown. */
async function save(
  setting: OneSetting,
  category: Category,
  value: OneSetting["value"],
  change: Call<"updateFeaturesSettings">,
) {
  const etag = await etagIfUnchanged(setting, category);
  return await change({ params: { header: { "If-Match": etag } }, body: { [setting.key]: value } });
}

/**
 * The switch of a setting that is on or off. It opens a confirmation that says what the other state means. Only `watchAll` has a
 * preview, because its change can remove assets from the inventory.
 */
function Toggle({ setting, category, isOn }: Props & { isOn: boolean }) {
  const { key, description } = setting;
  return (
    <Operate
      operation={operationOf(category)}
      title={isOn ? "Turn off" : "Turn on"}
      about={labelOf(key)}
      isOn={isOn}
      action={isOn ? "Turn off" : "Turn on"}
      {...(key === "watchAll" && {
        preview: {
          action: "Preview changes",
          isRequired: true,
          load: async (_: FormData, change: Call<"updateFeaturesSettings">) => (
            <ScopeChange of={scopeIn(await change({ params: { query: { preview: true } }, body: { [key]: !isOn } }))} />
          ),
        },
      })}
      submit={async (_, change) => await save(setting, category, !isOn, change)}
    >
      <Text>{description}</Text>
      <Text>
        The setting is {isOn ? "on" : "off"} now. All instances of the service use the new value within 30 seconds.
      </Text>
    </Operate>
  );
}

/** The input field of a setting that is not on or off, by its type. `allowed`: all values of a setting that has only a few. */
function Value({ setting: { key, type, value, minimum, maximum, allowed, description } }: { setting: OneSetting }) {
  const field = { name: "value", member: key, label: labelOf(key), hint: description };
  if (allowed) {
    const options = Object.fromEntries(allowed.map((option) => [option, valueText(key, option)]));
    return <ChoiceField {...field} options={options} defaultValue={String(value)} />;
  }
  if (type !== "integer") return <TextField {...field} defaultValue={String(value)} />;
  const bounds =
    minimum === null || maximum === null
      ? {}
      : {
          min: minimum,
          max: maximum,
          hint: `Enter ${minimum.toLocaleString()} to ${maximum.toLocaleString()}. ${description}`,
        };
  return (
    <NumberField
      {...field}
      // The unit is part of the label, unless the label contains the word anyway, such as "Vaults scanned in parallel".
      label={labelOf(key).toLowerCase().includes(unitOf(key)) ? labelOf(key) : `${labelOf(key)} (${unitOf(key)})`}
      required
      defaultValue={String(value)}
      {...bounds}
    />
  );
}

/** Returns the value from the form data, with the type that the API expects. */
function typedValue({ type }: OneSetting, form: FormData): OneSetting["value"] {
  return type === "integer" ? Number(fieldText(form, "value")) : fieldText(form, "value");
}

/**
 * Returns the etag of the setting's category, for a conditional change.
 *
 * @throws {Problem} If another user changed the setting since it was shown.
 */
async function etagIfUnchanged({ key, value, source }: OneSetting, { path }: Category): Promise<string> {
  const { data, error, response } = await client.GET(`/api/settings/${path}`, {});
  if (error) throw error;
  const current = (data as OneSetting[]).find((setting) => setting.key === key);
  // The etag covers the whole category. A change of another setting in it is no conflict with this change.
  if (current?.value === value && current.source === source) return response.headers.get("etag") ?? "";
  const problem: Problem = {
    type: "about:blank",
    title: "Another user changed this setting",
    status: 412,
    detail: `${labelOf(key)} is now ${current ? valueText(key, current.value) : "unknown"}${current?.updatedBy ? `, set by ${current.updatedBy}` : ""}. Reload to see the current value.`,
    instance: "",
    code: "preconditionFailed",
  };
  throw problem;
}

/** Returns the scope change in the response to a preview. Only `watchAll` has one. */
const scopeIn = (settings: Schemas["FeatureSetting"][]) => settings.find(({ scopeChange }) => scopeChange)?.scopeChange;

/**
 * Parameters of the preview of a reset. The etag never matches, and a preview ignores it. During an upgrade the request can reach
 * an instance of an earlier version, which does not know `preview`: it rejects the etag instead of resetting the setting.
 */
export const ONLY_PREVIEW = { query: { preview: true }, header: { "If-Match": '"preview"' } } as const;

/** The button that deletes the value that was set on this page. Rendered only if there is one. */
function Reset({ setting: { key }, category }: Props) {
  const path = { category: category.path, key };
  return (
    <Operate
      operation="removeOverride"
      title="Reset setting"
      about={labelOf(key)}
      action="Reset setting"
      {...(key === "watchAll" && {
        preview: {
          action: "Preview changes",
          isRequired: true,
          load: async (_: FormData, reset: Call<"removeOverride">) => (
            <ScopeChange of={scopeIn([(await reset({ params: { path, ...ONLY_PREVIEW } })).setting])} />
          ),
        },
      })}
      submit={(_, reset) => reset({ params: { path } })}
    >
      <Text>
        Deletes the value that was set on this page. Then the value from App Configuration applies, or else the one from
        the environment variable, or else the default.
      </Text>
    </Operate>
  );
}
