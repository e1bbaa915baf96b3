/** Form fields. A form reads each value by the field's name from its `FormData`. */
import { Button, Checkbox, Field, Input, makeStyles, Select, Textarea, tokens } from "@fluentui/react-components";
import { AddRegular, DismissRegular } from "@fluentui/react-icons";
import { type ComponentProps, createContext, type ReactNode, useContext, useEffect, useState } from "react";
import type { Problem } from "../api/client.ts";
import { entriesOf } from "./entries.ts";

const useStyles = makeStyles({
  section: {
    display: "flex",
    flexDirection: "column",
    gap: tokens.spacingVerticalM,
    minWidth: 0,
    margin: 0,
    padding: 0,
    border: "none",
  },
  entries: { display: "flex", flexDirection: "column", gap: tokens.spacingVerticalXS, margin: 0, padding: 0 },
  entry: {
    display: "flex",
    justifyContent: "space-between",
    alignItems: "center",
    gap: tokens.spacingHorizontalS,
    overflowWrap: "anywhere",
  },
  adding: { display: "flex", gap: tokens.spacingHorizontalS },
  grows: { flexGrow: 1, minWidth: 0 },
  legend: { fontWeight: tokens.fontWeightSemibold, padding: 0, marginBottom: tokens.spacingVerticalS },
});

/** A part of a long form with a heading, such as "Advanced". Forms with more than about six fields have such parts. */
export function FormSection({ title, children }: { title: string; children: ReactNode }) {
  const styles = useStyles();
  return (
    <fieldset className={styles.section}>
      <legend className={styles.legend}>{title}</legend>
      {children}
    </fieldset>
  );
}

interface Props {
  name: string;
  label: string;
  hint?: string | undefined;
  required?: boolean | undefined;
  /** The member of the request body, such as "escalation.afterDays". Default: `name`. */
  member?: string | undefined;
}

interface InputProps extends Pick<ComponentProps<typeof Input>, "type" | "min" | "max" | "autoComplete"> {
  defaultValue?: string;
  /** Called on each change with whether the field has a value. */
  onFilled?(isFilled: boolean): void;
}

interface FormState {
  /** Validation errors of the last response. */
  errors: NonNullable<Problem["errors"]>;
  /** Whether the change was saved. A later change of the server's values then comes from this form. */
  isSaved: boolean;
  /** Adds a body member that a field of the form shows errors of. */
  register(member: string): void;
}

export const FormContext = createContext<FormState>({ errors: [], isSaved: false, register: () => undefined });

/** Returns whether a validation error is about a body member or one of its nested members. */
export const isAbout = (member: string, { path }: { path: string }): boolean =>
  path === `body.${member}` || path.startsWith(`body.${member}.`);

/** Returns the validation errors of a body member and of its nested members, each message once. */
function useError(member: string): string {
  const { errors, register } = useContext(FormContext);
  useEffect(() => register(member), [register, member]);
  const memberErrors = errors.filter((error) => isAbout(member, error));
  return [...new Set(memberErrors.map(({ message }) => asSentence(message)))].join(" ");
}

/** Returns a validation message as a sentence. The API's messages start in lower case, for example "must be at least 1". */
const asSentence = (message: string): string =>
  `${message.charAt(0).toUpperCase()}${message.slice(1)}${/[.!?]$/.test(message) ? "" : "."}`;

/**
 * Returns the value of a field. A field without an edit follows the value on the server. An edited field keeps the edit, and
 * `conflict` is the server's value if it changed since the edit.
 *
 * @param initial - The value before any edit.
 * @param saved - The server's value, if it differs from `initial`.
 */
function useDraft<T>(initial: T, saved: T | undefined = initial) {
  // `base` is the value on the server at the time of the first edit.
  const [draft, setDraft] = useState<{ value: T; base: T | undefined }>();
  const isConflict = draft !== undefined && draft.base !== saved && draft.value !== saved;
  return {
    value: draft ? draft.value : initial,
    set: (value: T) => setDraft({ value, base: draft ? draft.base : saved }),
    conflict: isConflict ? saved : undefined,
  };
}

/** The frame of each field below: its label, its hint, and a validation error or a conflict with another user's change. */
function Frame({
  of: { name, label, hint, required = false, member = name },
  conflict,
  children,
}: {
  of: Omit<Props, "label"> & { label?: string };
  /** The value that another user saved while the form was open. */
  conflict?: string | undefined;
  children: ComponentProps<typeof Field>["children"];
}) {
  const error = useError(member);
  const { isSaved } = useContext(FormContext);
  const warning = conflict === undefined || isSaved ? "" : `Changed by another user to: ${conflict || "empty"}`;
  return (
    <Field
      {...(label !== undefined && { label })}
      hint={hint}
      required={required}
      validationState={error ? "error" : warning ? "warning" : "none"}
      validationMessage={error || warning || null}
    >
      {children}
    </Field>
  );
}

/** Returns the props of a text control, and the conflict to show in its frame. */
function useText(initial = "", onFilled?: InputProps["onFilled"]) {
  const { value, set, conflict } = useDraft(initial);
  const onChange = (_: unknown, data: { value: string }) => {
    set(data.value);
    onFilled?.(data.value !== "");
  };
  return { conflict, control: { value, onChange } };
}

/** A field with one line of text. `input` are props of the control, such as `type`. */
export function TextField({ label, hint, required, member, defaultValue, onFilled, ...input }: Props & InputProps) {
  const { conflict, control } = useText(defaultValue, onFilled);
  return (
    <Frame of={{ name: input.name, label, hint, required, member }} conflict={conflict}>
      <Input autoComplete="off" {...input} {...control} />
    </Frame>
  );
}

/** A field for a secret. It is masked, and empty when the form opens: the API never returns secrets. */
export const SecretField = (props: Props & Pick<InputProps, "onFilled">) => (
  <TextField {...props} type="password" autoComplete="new-password" />
);

/** A field for a number. The form data contains it as text. */
export const NumberField = (props: Props & InputProps) => <TextField {...props} type="number" />;

/**
 * The expiry date of the form's secret, which `fieldExpiry` reads. A field without an edit is not part of the form data: the saved
 * expiry can be at any time of day, and saving the date alone would change it.
 *
 * @param props.savedExpiry - Expiry of the current secret, ISO 8601. Null or undefined if unknown.
 * @param props.hasNewSecret - Whether a new secret was entered into the form. The field then starts empty, because the new secret
 *   has another expiry.
 */
export function ExpiryField({
  savedExpiry,
  hasNewSecret,
  ...props
}: Props & { savedExpiry: string | null | undefined; hasNewSecret: boolean }) {
  const day = savedExpiry?.slice(0, 10) ?? "";
  const initial = hasNewSecret ? "" : day;
  const { value, set, conflict } = useDraft(initial, day);
  return (
    <Frame of={props} conflict={hasNewSecret ? undefined : conflict}>
      <Input
        // Without a name, the field is not part of the form data.
        {...(value !== initial && { name: props.name })}
        type="date"
        value={value}
        onChange={(_, data) => set(data.value)}
      />
    </Frame>
  );
}

/** A field with several lines of text. */
export function LongField({
  label,
  hint,
  required,
  member,
  defaultValue,
  onFilled,
  ...area
}: Props & Pick<InputProps, "defaultValue" | "onFilled"> & { rows?: number }) {
  const { conflict, control } = useText(defaultValue, onFilled);
  return (
    <Frame of={{ name: area.name, label, hint, required, member }} conflict={conflict}>
      <Textarea resize="vertical" {...area} {...control} />
    </Frame>
  );
}

/**
 * A list of short texts, such as email addresses. Enter or the button adds the typed texts, also several at once. A text that is
 * typed but not added counts too, so that one address needs no extra step. `fieldEntries` reads the entries.
 *
 * @param props.noun - The entry, such as "address", for the button.
 */
export function ListField({
  name,
  label,
  hint,
  required,
  member,
  noun,
  defaultEntries = [],
}: Props & { noun: string; defaultEntries?: readonly string[] }) {
  const styles = useStyles();
  const { value, set, conflict } = useDraft(defaultEntries.join("\n"));
  const [text, setText] = useState("");
  const entries = entriesOf(value);
  const add = () => {
    set([...new Set([...entries, ...entriesOf(text)])].join("\n"));
    setText("");
  };
  return (
    <Frame of={{ name, label, hint, required, member }} conflict={conflict?.replaceAll("\n", ", ")}>
      {(control) => (
        <>
          {entries.length > 0 && (
            <ul className={styles.entries} aria-label={`Added: ${label}`}>
              {entries.map((entry) => (
                <li key={entry} className={styles.entry}>
                  <bdi>{entry}</bdi>
                  <input type="hidden" name={name} value={entry} />
                  <Button
                    size="small"
                    icon={<DismissRegular />}
                    aria-label={`Remove ${entry}`}
                    onClick={() => set(entries.filter((other) => other !== entry).join("\n"))}
                  />
                </li>
              ))}
            </ul>
          )}
          <div className={styles.adding}>
            <Input
              {...control}
              className={styles.grows}
              name={name}
              value={text}
              autoComplete="off"
              required={required === true && entries.length === 0}
              onChange={(_, data) => setText(data.value)}
              onKeyDown={(event) => {
                if (event.key !== "Enter" || text.trim() === "") return;
                // Otherwise Enter would send the form.
                event.preventDefault();
                add();
              }}
            />
            <Button icon={<AddRegular />} disabled={text.trim() === ""} onClick={add}>
              Add {noun}
            </Button>
          </div>
        </>
      )}
    </Frame>
  );
}

/**
 * A selection of one of several values. With `value`, the parent keeps the selected value, otherwise the field does. `choose`
 * is called with each selection.
 *
 * @param props.options - The values, or each value with its display text.
 */
export function ChoiceField<T extends string>({
  options,
  defaultValue,
  value,
  choose,
  ...props
}: Props & {
  options: readonly T[] | Readonly<Partial<Record<T, string>>>;
  defaultValue?: NoInfer<T>;
  value?: NoInfer<T>;
  choose?(value: NoInfer<T>): void;
}) {
  const pairs = Array.isArray(options)
    ? options.map((option: T) => [option, option] as const)
    : Object.entries<string>(options as Record<T, string>);
  // Without a default, the first option is only preselected. Options that load later are then no change of a saved value.
  const { value: draft, set, conflict } = useDraft<string>(defaultValue ?? pairs[0]?.[0] ?? "", defaultValue ?? "");
  const conflictText = pairs.find(([option]) => option === conflict)?.[1];
  return (
    <Frame of={props} conflict={conflictText}>
      <Select
        name={props.name}
        value={value ?? draft}
        onChange={(_, data) => {
          set(data.value);
          choose?.(data.value as T);
        }}
      >
        {pairs.map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </Select>
    </Frame>
  );
}

/**
 * A checkbox. The form data contains its name only while it is checked.
 *
 * @param props.value - The value in the form data if checked, for several checkboxes with one name.
 */
export function CheckField({
  label,
  hint,
  member,
  defaultChecked = false,
  ...box
}: Props & { value?: string; defaultChecked?: boolean }) {
  const { value, set, conflict } = useDraft(defaultChecked);
  return (
    <Frame
      of={{ name: box.name, hint, member }}
      conflict={conflict === undefined ? undefined : conflict ? "yes" : "no"}
    >
      <Checkbox {...box} label={label} checked={value} onChange={(_, data) => set(data.checked === true)} />
    </Frame>
  );
}
