import type { ReactNode } from "react";
import { type Operation, useMay } from "../api/access.ts";
import { type Call, callOf } from "../api/calls.ts";
import { FormDialog, type FormDialogProps } from "./form-dialog.tsx";

interface Props<O extends Operation, P extends Operation>
  extends Omit<FormDialogProps, "submit" | "operation" | "preview"> {
  operation: O;
  /** Does it, by the operation that was asked for. An element or a text that it answers is shown, such as the outcome of a test. */
  submit(form: FormData, call: Call<O>): Promise<unknown>;
  /** What it would do, by the same operation unless another is named. */
  preview?: {
    operation?: P;
    action: string;
    /** Whether nothing can be done before it was looked at. */
    first?: boolean;
    load(form: FormData, call: Call<P>): Promise<ReactNode>;
  };
}

/** A button for an operation of the API, with what it asks for first. Who may not call the operation is not offered it. */
export function Operate<O extends Operation, P extends Operation = O>(props: Props<O, P>) {
  const { operation, submit, preview, ...dialog } = props;
  const may = useMay();
  if (!may(operation)) return null;
  const call = callOf(operation);
  return (
    <FormDialog {...dialog} operation={operation} submit={(form) => submit(form, call)} {...previewOf(props, may)} />
  );
}

function previewOf<O extends Operation, P extends Operation>(
  { operation, preview }: Props<O, P>,
  may: (operation: Operation) => boolean,
): Pick<FormDialogProps, "preview"> {
  const named = (preview?.operation ?? operation) as P;
  if (!preview || !may(named)) return {};
  const call = callOf(named);
  return { preview: { ...preview, load: (form) => preview.load(form, call) } };
}
