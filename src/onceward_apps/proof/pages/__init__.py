"""Pages and routes: what customers see, what programs call, and the portal of the operators."""
