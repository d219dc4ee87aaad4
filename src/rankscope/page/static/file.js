// The page that was written to a file: the view of the model alone.
import { byId } from "./dom.js";
import { mount } from "./model.js";
import { keepTheme } from "./theme.js";

keepTheme();
mount(byId("view-model"));
