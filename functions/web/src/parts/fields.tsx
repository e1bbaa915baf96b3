/** The fields of forms. Each is read by its name from the form's data. */
import { Checkbox, Field, Input, Select, Textarea } from "@fluentui/react-components";
import { type ComponentProps, createContext, type ReactNode, useContext, useState } from "react";
import type { Problem } from "../api/client.ts";

interface Props {
  name: string;
  label: string;
  hint?: string | undefined;
  required?: boolean | undefined;
  /** The member of the request's body that it becomes, such as "escalation.afterDays"; its name unless said. */
  member?: string | undefined;
}

interface InputProps extends Pick<ComponentProps<typeof Input>, "type" | "min" | "max" | "autoComplete"> {
  defaultValue?: string;
  /** Is told whether there is anything in it. */
  typedInto?(isAnything: boolean): void;
}

interface FormState {
  /** What the API found wrong with what was sent. */
  errors: NonNullable<Problem["errors"]>;
  /** Whether it was saved: what changes from then on is the form's own doing. */
  isSaved: boolean;
}

export const FormContext = createContext<FormState>({ errors: [], isSaved: false });

/** What is wrong with a member of the body, in the API's words. */
function useError(member: string): string {
  const own = `body.${member}`;
  return useContext(FormContext)
    .errors.filter(({ path }) => path === own || path.startsWith(`${own}.`))
    .map(({ path, message }) => (path === own ? message : `${path.slice(own.length + 1)}: ${message}`))
    .join(" ");
}

/**
 * What a field holds. Where nothing was typed it follows what is set while the form is open; otherwise what was typed stays,
 * and `other` is what was set meanwhile.
 *
 * @param initial - What it holds before anything is typed.
 * @param saved - What is set, where the field begins with something else.
 */
function useHeld<T>(initial: T, saved: T | undefined = initial) {
  const [typed, type] = useState<{ value: T; over: T | undefined }>();
  const isOther = typed !== undefined && typed.over !== saved && typed.value !== saved;
  return {
    value: typed ? typed.value : initial,
    set: (value: T) => type({ value, over: typed ? typed.over : saved }),
    other: isOther ? saved : undefined,
  };
}

/** A label, a hint, and what is wrong with what was typed. */
function Frame({
  of: { name, label, hint, required = false, member = name },
  other,
  children,
}: {
  of: Omit<Props, "label"> & { label?: string };
  /** What was set meanwhile. */
  other?: string | undefined;
  children: ReactNode;
}) {
  const error = useError(member);
  const { isSaved } = useContext(FormContext);
  const meanwhile = other === undefined || isSaved ? "" : `Set meanwhile: ${other || "nothing"}`;
  return (
    <Field
      {...(label !== undefined && { label })}
      hint={hint}
      required={required}
      validationState={error ? "error" : meanwhile ? "warning" : "none"}
      validationMessage={error || meanwhile || null}
    >
      {children}
    </Field>
  );
}

/** What a control of text takes; `other` is what was set meanwhile. */
function useText(initial = "", typedInto?: InputProps["typedInto"]) {
  const { value, set, other } = useHeld(initial);
  const onChange = (_: unknown, data: { value: string }) => {
    set(data.value);
    typedInto?.(data.value !== "");
  };
  return { other, control: { value, onChange } };
}

export function TextField({ label, hint, required, member, defaultValue, typedInto, ...input }: Props & InputProps) {
  const { other, control } = useText(defaultValue, typedInto);
  return (
    <Frame of={{ name: input.name, label, hint, required, member }} other={other}>
      <Input autoComplete="off" {...input} {...control} />
    </Frame>
  );
}

/** @param props.secret - It goes in and never comes out: shown as dots, and empty when the form is opened. */
export const SecretField = (props: Props & Pick<InputProps, "typedInto">) => (
  <TextField {...props} type="password" autoComplete="new-password" />
);

export const NumberField = (props: Props & InputProps) => <TextField {...props} type="number" />;

/**
 * The day on which a secret of the form ends, as `endOf` reads it. Left as it is, the form does not have it: the end that is
 * saved may be at any hour.
 *
 * @param props.end - The end of the one that is set.
 * @param props.isAnother - Whether another secret was typed: the end of one is not that of the next.
 */
export function EndField({ end, isAnother, ...props }: Props & { end: string | null | undefined; isAnother: boolean }) {
  const day = end?.slice(0, 10) ?? "";
  const initial = isAnother ? "" : day;
  const { value, set, other } = useHeld(initial, day);
  return (
    <Frame of={props} other={isAnother ? undefined : other}>
      <Input
        {...(value !== initial && { name: props.name })}
        type="date"
        value={value}
        onChange={(_, data) => set(data.value)}
      />
    </Frame>
  );
}

export function LongField({
  label,
  hint,
  required,
  member,
  defaultValue,
  typedInto,
  ...area
}: Props & Pick<InputProps, "defaultValue" | "typedInto"> & { rows?: number }) {
  const { other, control } = useText(defaultValue, typedInto);
  return (
    <Frame of={{ name: area.name, label, hint, required, member }} other={other}>
      <Textarea resize="vertical" {...area} {...control} />
    </Frame>
  );
}

/** @param props.options - The values, or each value with its words. */
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
    ? options.map((one: T) => [one, one] as const)
    : Object.entries<string>(options as Record<T, string>);
  const { value: held, set, other } = useHeld<string>(defaultValue ?? pairs[0]?.[0] ?? "", defaultValue ?? "");
  const words = pairs.find(([one]) => one === other)?.[1];
  return (
    <Frame of={props} other={words}>
      <Select
        name={props.name}
        value={value ?? held}
        onChange={(_, data) => {
          set(data.value);
          choose?.(data.value as T);
        }}
      >
        {pairs.map(([one, words]) => (
          <option key={one} value={one}>
            {words}
          </option>
        ))}
      </Select>
    </Frame>
  );
}

/** @param props.value - What the form has for it where it is checked, of several with one name. */
export function CheckField({
  label,
  hint,
  member,
  defaultChecked = false,
  ...box
}: Props & { value?: string; defaultChecked?: boolean }) {
  const { value, set, other } = useHeld(defaultChecked);
  return (
    <Frame of={{ name: box.name, hint, member }} other={other === undefined ? undefined : other ? "yes" : "no"}>
      <Checkbox {...box} label={label} checked={value} onChange={(_, data) => set(data.checked === true)} />
    </Frame>
  );
}
